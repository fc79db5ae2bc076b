# The CUDA backend, where nvcc and the toolkit are found: the device in src/tensor/cuda and the kernels
# in src/kernels/cuda, for Ampere, Hopper and Blackwell. Without them the same functions answer that
# this build has no CUDA, so nothing above changes.
if(JIGE_CUDA)
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no later one for this compiler
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 100-real 100-virtual)
  enable_language(CUDA)
  file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  add_library(jige_kernels_cuda STATIC ${cuda_kernels})
  target_include_directories(jige_kernels_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(jige_kernels_cuda PRIVATE -Xcompiler=-Wall,-Wextra)
  target_sources(jige_tensor PRIVATE src/tensor/cuda/cuda_device.cc)
  target_link_libraries(jige_tensor PRIVATE CUDA::cudart_static)
else()
  target_sources(jige_tensor PRIVATE src/tensor/cuda/cuda_absent.cc)
endif()
