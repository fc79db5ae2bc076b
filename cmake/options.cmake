# Build options and the flags every target shares.
option(JIGE_WERROR "Treat warnings as errors" ON)
option(JIGE_DCHECK "Keep checks in hot loops" OFF)
option(JIGE_BENCH "Build the benchmarks" OFF)
option(JIGE_PRECOMPILED "Precompile common headers" ON)
option(JIGE_UNITY "Compile several sources of a target at a time" ON)
set(JIGE_CUDA_ARCHITECTURES "80;90-real;100-real" CACHE STRING
    "GPUs to compile kernels for, as CMake names them; here: those of this machine, or where there is none, what \
drivers of all compile at run time")
set(JIGE_SANITIZE "" CACHE STRING "Sanitizers of GCC, such as those of the presets asan and tsan; or empty")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # ccache takes precompiled headers only when told that dates in them do not matter. By itself it reads
  # their 100 MB and runs the preprocessor for every source, a third of a second each; instead it
  # remembers files it has read (inode cache) and trusts the compiler's list of headers (depend).
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1 CCACHE_DEPEND=1 ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  if(JIGE_PRECOMPILED)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

# Contraction is off so that a multiply and an add are fused exactly where the source says fma:
# the same bits from every instruction set and inlining decision.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-missing-field-initializers;-march=x86-64-v3;-ffp-contract=off;-fno-omit-frame-pointer>")
# GCC 12 sees uninitialised and overlapping strings in std::string code that is right (GCC bugs 105562
# and 105651).
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
if(JIGE_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(JIGE_DCHECK)
  add_compile_definitions(JIGE_DCHECK_ENABLED=1)
endif()
if(JIGE_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${JIGE_SANITIZE};-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${JIGE_SANITIZE})
endif()
