# Makes the headers that are installed out of the headers in src: cmake -DFROM=src -DTO=include/lull -DMODULES=base|gpu|…
# -P headers.cmake. Inside, an include names its module ("gpu/snapshot.h"); outside, that it is lull's
# ("lull/gpu/snapshot.h"), so that no other `base/` on the include path can come between. Left in the house: what tests
# need, the driver's interface with what talks to it, and TRY.
string(REPLACE "|" ";" modules "${MODULES}")
file(REMOVE_RECURSE ${TO})
foreach(module ${modules})
  file(GLOB_RECURSE headers RELATIVE ${FROM} ${FROM}/${module}/*.h)
  list(FILTER headers EXCLUDE REGEX "_test\\.h$|/test_[a-z_]*\\.h$|^nvml/|^sense/(nvml|amd|intel|tegra)/|^base/try\\.h$|^config/signal_reader\\.h$")
  foreach(header ${headers})
    file(READ ${FROM}/${header} text)
    string(REGEX REPLACE "#include \"base/try\\.h\"[^\n]*\n" "" text "${text}")
    string(REGEX REPLACE "#include \"([a-z]+/)" "#include \"lull/\\1" text "${text}")
    file(WRITE ${TO}/${header} "${text}")
  endforeach()
endforeach()
