# The only find_package calls of the build. Debian names are in tools/packages.txt.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(tl-expected 1.0 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(GTest 1.12 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc>=2.5)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece>=0.1.97)

# Optional parts: the build and all tests pass without them; `jige version` says which are there.
find_package(CUDAToolkit QUIET)
find_package(MPI QUIET COMPONENTS C)
# Debian's dnnl-config.cmake demands the OpenCL headers, which a program that uses the CPU part of
# oneDNN does not need; so the library is looked up by name.
find_library(DNNL_LIBRARY dnnl)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
if(DNNL_LIBRARY AND DNNL_INCLUDE_DIR)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
find_program(SLURM_SBATCH sbatch)
if(JIGE_BENCH)
  find_package(benchmark QUIET)
endif()
