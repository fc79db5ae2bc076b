# Headers that most sources include, parsed once for all libraries and once for all test programs.
# Every source still includes what it uses: -DJIGE_PRECOMPILED=OFF builds without.
if(JIGE_PRECOMPILED)
  # From a precompiled header GCC 12 no longer knows that a warning lies in the standard library.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
endif()

set(JIGE_COMMON_HEADERS
    <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span>
    <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# The first call of a kind (library, test) compiles the headers, the others use the result.
function(jige_precompile target kind)
  if(kind STREQUAL test)
    target_compile_options(${target} PRIVATE -O1)  # what is tested keeps its own optimisation
  endif()
  if(NOT JIGE_PRECOMPILED)
    return()
  endif()
  get_property(first GLOBAL PROPERTY JIGE_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  set(headers ${JIGE_COMMON_HEADERS})
  if(kind STREQUAL test)
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} PRIVATE ${headers})
  set_property(GLOBAL PROPERTY JIGE_PRECOMPILED_${kind} ${target})
endfunction()
