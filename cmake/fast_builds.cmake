# Faster builds: sources of a target are compiled several at a time, and headers that most of them include
# are parsed once, for libraries and for test programs. Every source still includes what it uses and could
# be compiled alone: -DJIGE_UNITY=OFF -DJIGE_PRECOMPILED=OFF does so.
if(JIGE_PRECOMPILED)
  # From a precompiled header GCC 12 no longer knows that a warning lies in the standard library.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
endif()
if(JIGE_UNITY)
  # It takes types of unnamed namespaces for shared ones where they lie in no main file.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# What every source may include without naming it in a folder's DEPS.
set(JIGE_COMMON_PACKAGES fmt::fmt spdlog::spdlog Threads::Threads nlohmann_json::nlohmann_json tl::expected)

set(JIGE_COMMON_HEADERS
    <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span>
    <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# jige_precompiled(kind TEST?): a target that has nothing but the precompiled headers of a kind.
function(jige_precompiled kind)
  cmake_parse_arguments(ARG "TEST" "" "" ${ARGN})
  set(empty ${CMAKE_BINARY_DIR}/generated/empty.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${kind} OBJECT ${empty})
  target_link_libraries(${kind} PRIVATE ${JIGE_COMMON_PACKAGES})
  set(headers ${JIGE_COMMON_HEADERS})
  if(ARG_TEST)
    target_link_libraries(${kind} PRIVATE GTest::gmock GTest::gtest)
    target_compile_options(${kind} PRIVATE ${JIGE_TEST_OPTIMIZATION})
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${kind} PRIVATE ${headers})
endfunction()

set(JIGE_TEST_OPTIMIZATION -O1)  # in all presets; what is tested keeps its own
if(JIGE_PRECOMPILED)
  jige_precompiled(jige_precompiled_library)
  jige_precompiled(jige_precompiled_test TEST)
endif()

# jige_compile_fast(target TEST?): the two for the sources of a target. TEST: it is a test program.
function(jige_compile_fast target)
  cmake_parse_arguments(ARG "TEST" "" "" ${ARGN})
  set(kind jige_precompiled_library)
  if(ARG_TEST)
    set(kind jige_precompiled_test)
    target_compile_options(${target} PRIVATE ${JIGE_TEST_OPTIMIZATION})
  endif()
  if(JIGE_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${kind})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${JIGE_UNITY} UNITY_BUILD_BATCH_SIZE 32)
endfunction()
