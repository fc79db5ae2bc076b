# The CUDA backend, where nvcc and the toolkit are found: the device in src/tensor/cuda. Without them
# the same functions answer that this build has no CUDA, so nothing above changes.
if(JIGE_CUDA)
  enable_language(CUDA)  # names the compiler of the image below
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of nvcc 13
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  add_library(jige_cuda_device STATIC src/tensor/cuda/cuda_device.cc src/tensor/cuda/cuda_stream.cc
              src/tensor/cuda/cuda_graphs.cc)
  target_link_libraries(jige_cuda_device PRIVATE CUDA::cudart_static)
else()
  add_library(jige_cuda_device STATIC src/tensor/cuda/cuda_absent.cc)
endif()
target_link_libraries(jige_cuda_device PUBLIC jige_tensor)
target_link_libraries(tensor_test PRIVATE jige_cuda_device)

# jige_gpus_here(out): the GPUs of this machine, as architectures to compile for.
function(jige_gpus_here out)
  set(architectures)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
    foreach(capability ${capabilities})
      string(REPLACE "." "" number ${capability})
      list(APPEND architectures ${number}-real)
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  set(${out} ${architectures} PARENT_SCOPE)
endfunction()

# jige_kernel_batches(out suffix): sources that include several kernels each, so that headers are parsed
# once for all of them; CMake makes such of C++ alone (fast_builds.cmake). Kernels with like names take
# alike to compile: neighbours go into different batches. -DJIGE_UNITY=OFF: a source for each kernel.
function(jige_kernel_batches out suffix)
  set(batch_size 6)
  file(GLOB kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src
       ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  list(LENGTH kernels count)
  set(batches ${count})
  if(JIGE_UNITY)
    math(EXPR batches "(${count} + ${batch_size} - 1) / ${batch_size}")
  endif()
  math(EXPR last_batch "${batches} - 1")
  math(EXPR last_kernel "${count} - 1")
  set(sources)
  foreach(batch RANGE ${last_batch})
    set(name batch_${batch})
    set(includes)
    foreach(index RANGE ${batch} ${last_kernel} ${batches})
      list(GET kernels ${index} kernel)
      string(APPEND includes "#include \"${kernel}\"\n")
    endforeach()
    if(NOT JIGE_UNITY)
      get_filename_component(name ${kernel} NAME_WE)
    endif()
    set(source ${CMAKE_BINARY_DIR}/generated/cuda/${name}.${suffix})
    file(CONFIGURE OUTPUT ${source} CONTENT "${includes}")
    list(APPEND sources ${source})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# The kernels of src/kernels/cuda, twice. jige_kernels_cuda: for GPUs. jige_kernels_emulated: the same
# sources by the host compiler, for test programs, with an emulated GPU; its objects take the place of the
# former's, and of jige_cuda_device's. In a build without nvcc, where no GPU can be asked for, the
# emulated kernels are all there are.
set(folder ${CMAKE_SOURCE_DIR}/src/kernels/cuda)
file(GLOB host CONFIGURE_DEPENDS ${folder}/*.cc)
list(FILTER host EXCLUDE REGEX "_test\\.cc$")
file(GLOB emulation CONFIGURE_DEPENDS ${folder}/emulation/*.cc)
jige_kernel_batches(emulated_kernels cc)
set_source_files_properties(${emulated_kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_library(jige_kernels_emulated OBJECT ${emulation} ${emulated_kernels})
set_target_properties(jige_kernels_emulated PROPERTIES UNITY_BUILD ${JIGE_UNITY})
target_compile_definitions(jige_kernels_emulated PRIVATE JIGE_CUDA_EMULATED)
target_include_directories(jige_kernels_emulated PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(jige_kernels_emulated PUBLIC jige_tensor)
target_compile_options(jige_kernels_emulated PRIVATE -O2 -Wno-unknown-pragmas)  # nvcc's
set_source_files_properties(${folder}/emulation/emulated.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
                            COMPILE_OPTIONS -O3)
if(JIGE_CUDA)
  jige_kernel_batches(kernels cu)
  add_library(jige_kernels_cuda STATIC ${kernels} ${host})
  target_include_directories(jige_kernels_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(jige_kernels_cuda PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
  set(architectures "${JIGE_CUDA_ARCHITECTURES}")
  if(architectures STREQUAL here)
    jige_gpus_here(architectures)
    if(NOT architectures)
      # No GPU runs them: PTX alone, soon made, which a driver would compile for any GPU that it meets.
      set(architectures 80-virtual)
      target_compile_options(jige_kernels_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcicc -O1>)
    endif()
  endif()
  set_target_properties(jige_kernels_cuda PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  # Products and sums are fused where the source says so, as in options.cmake.
  target_compile_options(jige_kernels_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
else()
  add_library(jige_kernels_cuda STATIC $<TARGET_OBJECTS:jige_kernels_emulated>)
  target_include_directories(jige_kernels_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src)
endif()
target_link_libraries(jige_kernels_cuda PUBLIC jige_cuda_device)

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
