# cli/build_info.h, from which `jige version` says what the build found.
function(jige_shown result library)
  set(${result} "" PARENT_SCOPE)
  if(library)
    set(${result} ${library} PARENT_SCOPE)
  endif()
endfunction()
jige_shown(NCCL_LIBRARY_SHOWN "${NCCL_LIBRARY}")
jige_shown(SLURM_SBATCH_SHOWN "${SLURM_SBATCH}")
jige_shown(DNNL_LIBRARY_SHOWN "${DNNL_LIBRARY}")

configure_file(${CMAKE_SOURCE_DIR}/src/cli/build_info.h.in ${CMAKE_BINARY_DIR}/generated/cli/build_info.h @ONLY)
target_include_directories(jige_cli PUBLIC ${CMAKE_BINARY_DIR}/generated)
