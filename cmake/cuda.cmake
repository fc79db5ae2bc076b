# The CUDA backend, where nvcc and the toolkit are found: the device in src/tensor/cuda. Without them
# the same functions answer that this build has no CUDA, so nothing above changes.
if(JIGE_CUDA)
  enable_language(CUDA)  # names the compiler of the image below
  target_sources(jige_tensor PRIVATE src/tensor/cuda/cuda_device.cc)
  target_link_libraries(jige_tensor PRIVATE CUDA::cudart_static)
else()
  target_sources(jige_tensor PRIVATE src/tensor/cuda/cuda_absent.cc)
endif()

# The kernel of transfers between GPUs is an image in the binary, which the driver loads; the program
# needs no CUDA library for it. Called once the library is there that holds it.
function(jige_copy_kernel target)
  set(folder ${CMAKE_SOURCE_DIR}/src/profile/cuda)
  if(NOT JIGE_CUDA)
    target_sources(${target} PRIVATE ${folder}/no_copy_kernel.cc)
    return()
  endif()
  set(image ${CMAKE_BINARY_DIR}/generated/copy_kernel.fatbin)
  set(architectures -gencode arch=compute_80,code=[sm_80,compute_80])
  foreach(real 86 89 90 100 120)
    list(APPEND architectures -gencode arch=compute_${real},code=sm_${real})
  endforeach()
  add_custom_command(
    OUTPUT ${image}
    COMMAND ${CMAKE_CUDA_COMPILER} -O3 -fatbin ${architectures} -o ${image} ${folder}/copy_kernel.cu
    DEPENDS ${folder}/copy_kernel.cu VERBATIM)
  set(source ${CMAKE_BINARY_DIR}/generated/copy_kernel_image.cc)
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DIMAGE=${image} -DOUTPUT=${source}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed_image.cmake
    DEPENDS ${image} ${CMAKE_SOURCE_DIR}/cmake/embed_image.cmake VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
