# Packs files into a C++ source: cmake -DHEADER=room/name.h -DSPACE=lull::room -DOUT=packed.cc -DFILES=a.html|b.js
# -P pack.cmake. The header declares `extern const std::string_view packed_a_html, …;` in SPACE.
string(REPLACE "|" ";" files "${FILES}")
set(text "// Made by tools/pack.cmake.\n#include \"${HEADER}\"\n\nnamespace ${SPACE} {\n\n")
foreach(file ${files})
  cmake_path(GET file FILENAME name)
  string(MAKE_C_IDENTIFIER "packed_${name}" name)
  file(READ ${file} bytes HEX)
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(APPEND text "const std::string_view ${name}{\"${bytes}\", ${length}};\n")
endforeach()
file(WRITE ${OUT} "${text}\n}  // namespace ${SPACE}\n")
