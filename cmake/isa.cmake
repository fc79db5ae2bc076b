# Sources named *_simd.cc are written once against kernels/cpu/simd.h and compiled for AVX2 and for
# AVX-512, those named *_tiles.cc for AVX512_BF16 and for AMX, each time in a namespace of its own
# (JIGE_ISA_NS). Their functions are internal or live in that namespace; they include nothing that
# emits shared inline code.
set(JIGE_ISA_OPTIMIZATION -O3)
if(JIGE_SANITIZE)
  set(JIGE_ISA_OPTIMIZATION -O1)  # instrumented and unrolled, a kernel compiles for minutes
endif()
set(JIGE_ISA_FLAGS_avx2 "")
set(JIGE_ISA_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(JIGE_ISA_FLAGS_vnni -march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512)
set(JIGE_ISA_FLAGS_bf16 -march=x86-64-v4 -mavx512bf16 -mprefer-vector-width=512)
set(JIGE_ISA_FLAGS_amx -march=sapphirerapids -mprefer-vector-width=512)

# Adds sources to `target` as the object library `library`, compiled for one instruction set, whose
# vectors simd.h gives them: those of AVX2 or of AVX-512.
function(jige_isa_library target library isa)
  set(vectors avx512)
  if(isa STREQUAL avx2)
    set(vectors avx2)
  endif()
  add_library(${library} OBJECT ${ARGN})
  target_compile_definitions(${library} PRIVATE JIGE_ISA_NS=${isa} JIGE_ISA_${vectors}=1)
  target_compile_options(${library} PRIVATE ${JIGE_ISA_FLAGS_${isa}} ${JIGE_ISA_OPTIMIZATION} -fno-exceptions)
  target_include_directories(${library} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
endfunction()

# Adds sources to `target`, each once per instruction set of the list `isas`.
function(jige_isa_sources target isas)
  foreach(source ${ARGN})
    get_filename_component(stem ${source} NAME_WE)
    string(REPLACE "/" "_" library ${target}_${stem})
    foreach(isa ${isas})
      jige_isa_library(${target} ${library}_${isa} ${isa} ${source})
    endforeach()
  endforeach()
endfunction()

# Adds sources named *_<isa>.cc, avx2, avx512, vnni (AVX512_VNNI), bf16 (AVX512_BF16) or amx, compiled with its
# flags only.
function(jige_one_isa_sources target isa)
  if(ARGN)
    jige_isa_library(${target} ${target}_${isa} ${isa} ${ARGN})
  endif()
endfunction()
