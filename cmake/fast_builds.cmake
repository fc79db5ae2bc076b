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

# Test programs are compiled with little optimization, in all presets; what is tested keeps its own. Those
# whose oracles compute for long get more of it.
set(JIGE_OPTIMIZATION_test -Og)
set(JIGE_OPTIMIZATION_oracle_test -O1)

# jige_precompiled(kind): a target that has nothing but the precompiled headers of a kind of targets:
# library, test or oracle_test. GCC takes them only where optimization is the same.
function(jige_precompiled kind)
  set(target jige_precompiled_${kind})
  set(empty ${CMAKE_BINARY_DIR}/generated/empty.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${target} OBJECT ${empty})
  target_link_libraries(${target} PRIVATE ${JIGE_COMMON_PACKAGES})
  target_compile_options(${target} PRIVATE ${JIGE_OPTIMIZATION_${kind}})
  set(headers ${JIGE_COMMON_HEADERS})
  if(NOT kind STREQUAL library)
    target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest)
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

if(JIGE_PRECOMPILED)
  foreach(kind library test oracle_test)
    jige_precompiled(${kind})
  endforeach()
endif()

# jige_compile_fast(target kind): both for the sources of a target of a kind.
function(jige_compile_fast target kind)
  target_compile_options(${target} PRIVATE ${JIGE_OPTIMIZATION_${kind}})
  if(JIGE_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM jige_precompiled_${kind})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${JIGE_UNITY} UNITY_BUILD_BATCH_SIZE 32)
endfunction()
