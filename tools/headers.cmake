# Makes the headers that are installed out of those of the house: cmake -DFROM=src -DTO=include/lull -DROOMS=base|gpu|…
# -P headers.cmake. Inside, an include names its room ("gpu/snapshot.h"); outside, that it is lull's
# ("lull/gpu/snapshot.h"), so that no other `base/` on the include path can come between. Left in the house: what tests
# need, the driver's interface with what talks to it, and TRY.
string(REPLACE "|" ";" rooms "${ROOMS}")
file(REMOVE_RECURSE ${TO})
foreach(room ${rooms})
  file(GLOB_RECURSE headers RELATIVE ${FROM} ${FROM}/${room}/*.h)
  list(FILTER headers EXCLUDE REGEX "_test\\.h$|/test_[a-z_]*\\.h$|^nvml/|^sense/nvml/|^base/try\\.h$")
  foreach(header ${headers})
    file(READ ${FROM}/${header} text)
    string(REGEX REPLACE "#include \"base/try\\.h\"[^\n]*\n" "" text "${text}")
    string(REGEX REPLACE "#include \"([a-z]+/)" "#include \"lull/\\1" text "${text}")
    file(WRITE ${TO}/${header} "${text}")
  endforeach()
endforeach()
