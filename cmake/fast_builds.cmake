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

# The more sources a batch has, and the later the compiler collects garbage, the less time it takes and the
# more memory: up to 2.5 GiB, or one where the processors of this machine have less than that each; two fifths
# more with sanitizers. No more compilers run at once than memory holds, however the build is started.
cmake_host_system_information(RESULT mebibytes QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR mebibytes_each "${mebibytes} / ${processors}")
set(compiler_mebibytes 2560)
set(small_compiler_mebibytes 1024)
if(JIGE_SANITIZE)
  set(compiler_mebibytes 3584)
  set(small_compiler_mebibytes 1434)
endif()
if(mebibytes_each GREATER_EQUAL compiler_mebibytes)
  set(JIGE_BATCH_SOURCES_MAX 56)
  set(garbage_kibibytes 1500000)
else()
  set(JIGE_BATCH_SOURCES_MAX 24)
  set(garbage_kibibytes 300000)
  set(compiler_mebibytes ${small_compiler_mebibytes})
endif()
math(EXPR compilers_max "${mebibytes} / ${compiler_mebibytes}")
if(compilers_max EQUAL 0)
  set(compilers_max 1)
endif()
add_compile_options(
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=${garbage_kibibytes}>")
set_property(GLOBAL PROPERTY JOB_POOLS compilers=${compilers_max})
set(CMAKE_JOB_POOL_COMPILE compilers)

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

# jige_compile_fast(target kind): both for the sources of a target of a kind, all of which it has already.
# They are compiled in batches of one size.
function(jige_compile_fast target kind)
  target_compile_options(${target} PRIVATE ${JIGE_OPTIMIZATION_${kind}})
  if(JIGE_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM jige_precompiled_${kind})
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cc$")
  list(LENGTH sources count)
  math(EXPR batches "(${count} + ${JIGE_BATCH_SOURCES_MAX} - 1) / ${JIGE_BATCH_SOURCES_MAX}")
  math(EXPR batch_size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${JIGE_UNITY} UNITY_BUILD_BATCH_SIZE ${batch_size})
endfunction()
