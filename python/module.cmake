# lull._core, the part of the package `lull` that is made in C++, and the packages as folders that can be imported from
# BUILD/python. Python sources are links there: editing one needs no build. On a machine without pybind11 or Python's
# headers lull itself is built all the same.
set(LULL_PYTHON_FOLDER ${CMAKE_BINARY_DIR}/python)
if(NOT DEFINED Python3_EXECUTABLE AND EXISTS /usr/bin/python3)
  set(Python3_EXECUTABLE /usr/bin/python3) # Debian's, for which Debian's pybind11 is; not one that PATH has first
endif()
find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)
set(PYBIND11_NOPYTHON ON)
find_package(pybind11 CONFIG QUIET)
if(NOT Python3_Development.Module_FOUND OR NOT pybind11_FOUND)
  message(STATUS "The Python module is left out: it needs pybind11-dev and python3-dev")
  return()
endif()

sources_of(python_sources python/src/*.cc)
in_units(units lull_core 8 ${python_sources})
Python3_add_library(lull_core MODULE WITH_SOABI ${units})
set_target_properties(lull_core PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${LULL_PYTHON_FOLDER}/lull)
target_include_directories(lull_core PRIVATE python/src)
target_compile_definitions(lull_core PRIVATE LULL_VERSION="${PROJECT_VERSION}")
target_link_libraries(lull_core PRIVATE lull_session lull_replay lull_lease lull_view pybind11::headers)
target_link_options(lull_core PRIVATE -Wl,--gc-sections -Wl,--as-needed)

# Every package is a folder in python/ with an __init__.py; every single module a file there.
file(GLOB python_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/python
  python/*.py python/*/*.py python/*/*.pyi python/*/py.typed)
foreach(file ${python_files})
  cmake_path(GET file PARENT_PATH package)
  file(MAKE_DIRECTORY ${LULL_PYTHON_FOLDER}/${package})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/python/${file} ${LULL_PYTHON_FOLDER}/${file} SYMBOLIC)
endforeach()
# Links to what is gone would still be imported.
file(GLOB python_links RELATIVE ${LULL_PYTHON_FOLDER} ${LULL_PYTHON_FOLDER}/*.py ${LULL_PYTHON_FOLDER}/*/*.py
  ${LULL_PYTHON_FOLDER}/*/*.pyi)
foreach(file ${python_links})
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/python/${file})
    file(REMOVE ${LULL_PYTHON_FOLDER}/${file})
  endif()
endforeach()

# Where Python finds it, below the prefix: lib/python3/dist-packages for Debian. Empty: it is not installed (a wheel is
# made by setup.py).
set(LULL_PYTHON_DIR "" CACHE STRING "Where `cmake --install` puts the Python packages, below the prefix")
if(LULL_PYTHON_DIR)
  install(TARGETS lull_core LIBRARY DESTINATION ${LULL_PYTHON_DIR}/lull)
  foreach(file ${python_files})
    cmake_path(GET file PARENT_PATH package)
    install(FILES ${CMAKE_SOURCE_DIR}/python/${file} DESTINATION ${LULL_PYTHON_DIR}/${package})
  endforeach()
endif()
