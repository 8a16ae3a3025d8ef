# find_package(lull) gives lull::lull.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/lullTargets.cmake)
