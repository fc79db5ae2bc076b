# Headers that most sources include, parsed once for libraries and once for test programs.
# Every source still includes what it uses: -DJIGE_PRECOMPILED=OFF builds without.
if(JIGE_PRECOMPILED)
  # From a precompiled header GCC 12 no longer knows that a warning lies in the standard library.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
endif()

# What every source may include without naming it in a folder's DEPS.
set(JIGE_COMMON_PACKAGES fmt::fmt spdlog::spdlog Threads::Threads nlohmann_json::nlohmann_json tl::expected)

# nlohmann/json.hpp is not among them: its literals are inline functions that parse, so every source
# that sees it instantiates a whole parser, which takes as long as all else in a source without JSON.
# Sources that use JSON have a second kind with it.
set(JIGE_COMMON_HEADERS
    <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span>
    <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)

# jige_precompiled(kind TEST? JSON?): a target that has nothing but the precompiled headers of a kind.
function(jige_precompiled kind)
  cmake_parse_arguments(ARG "TEST;JSON" "" "" ${ARGN})
  set(empty ${CMAKE_BINARY_DIR}/generated/empty.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${kind} OBJECT ${empty})
  target_link_libraries(${kind} PRIVATE ${JIGE_COMMON_PACKAGES})
  set(headers ${JIGE_COMMON_HEADERS})
  if(ARG_JSON)
    list(APPEND headers <nlohmann/json.hpp>)
  endif()
  if(ARG_TEST)
    target_link_libraries(${kind} PRIVATE GTest::gmock GTest::gtest)
    target_compile_options(${kind} PRIVATE ${JIGE_TEST_OPTIMIZATION})
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${kind} PRIVATE ${headers})
endfunction()

set(JIGE_TEST_OPTIMIZATION -O1)  # what is tested keeps its own
if(JIGE_PRECOMPILED)
  jige_precompiled(jige_precompiled_library)
  jige_precompiled(jige_precompiled_library_json JSON)
  jige_precompiled(jige_precompiled_test TEST)
  jige_precompiled(jige_precompiled_test_json TEST JSON)
endif()

# Our headers that include nlohmann/json.hpp, as a pattern of #include lines that lead to it.
file(GLOB_RECURSE headers RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
set(JIGE_JSON_INCLUDE "^#include (<nlohmann/json.hpp>")
foreach(header ${headers})
  file(STRINGS ${CMAKE_SOURCE_DIR}/src/${header} json REGEX "^#include <nlohmann/json.hpp>")
  if(json)
    string(APPEND JIGE_JSON_INCLUDE "|\"${header}\"")
  endif()
endforeach()
string(APPEND JIGE_JSON_INCLUDE ")")

# jige_precompile(target TEST?): the sources of a target use precompiled headers, with JSON those that
# include it when the build is configured (after a change until then: slower, as right). TEST: it is
# a test program.
function(jige_precompile target)
  cmake_parse_arguments(ARG "TEST" "" "" ${ARGN})
  set(kind jige_precompiled_library)
  if(ARG_TEST)
    set(kind jige_precompiled_test)
    target_compile_options(${target} PRIVATE ${JIGE_TEST_OPTIMIZATION})
  endif()
  if(NOT JIGE_PRECOMPILED)
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${kind})
  # A target reuses one precompiled header; sources that need the other one name it themselves.
  set(with_json ${CMAKE_BINARY_DIR}/CMakeFiles/${kind}_json.dir/cmake_pch.hxx)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    file(STRINGS ${path} json REGEX "${JIGE_JSON_INCLUDE}" LIMIT_COUNT 1)
    if(json)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                                  COMPILE_OPTIONS "-Winvalid-pch;-include;${with_json}"
                                  OBJECT_DEPENDS ${with_json}.gch)
    endif()
  endforeach()
endfunction()
