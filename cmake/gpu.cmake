# Compiles the sources of the "gpu" group for CUDA or HIP and adds them to warpjoin_core.
warpjoin_sources(gpu GPU_SOURCES)

if(WARPJOIN_GPU STREQUAL "cuda")
  # What the environment asks for, else what the GPUs at hand are.
  set(architectures $ENV{WARPJOIN_CUDA_ARCHITECTURES})
  if(NOT architectures)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE capabilities RESULT_VARIABLE ignored ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" architectures "${capabilities}")
    list(REMOVE_DUPLICATES architectures)
    string(REPLACE "." "" architectures "${architectures}")
  endif()
  if(NOT architectures)
    set(architectures 90)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${architectures}")
  string(REPLACE ";" "," architecture_list "${architectures}")
  foreach(architecture ${architectures})
    if(NOT architecture MATCHES "^(80|87|90|10[0-9]|110)([^0-9]|$)")  # the others give a block 64 or 99 KiB of shared memory
      set(small_blocks ON)
    endif()
  endforeach()
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows no C++20 for nvcc
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
  # Objects of a target of their own: the host's warnings and sanitizers are not for nvcc.
  add_library(warpjoin_gpu OBJECT ${GPU_SOURCES})
  target_include_directories(warpjoin_gpu PRIVATE native)
  target_compile_options(warpjoin_gpu PRIVATE --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra -lineinfo)
  # What the addon has code for: lib/gpus.ts compares it with the GPUs.
  set_source_files_properties("${CMAKE_CURRENT_SOURCE_DIR}/native/device/gpu_device.cu" PROPERTIES
    COMPILE_DEFINITIONS "WARPJOIN_GPU_ARCHITECTURES=\"${architecture_list}\"")
  if(small_blocks OR WARPJOIN_SMALL_BLOCKS)
    target_compile_definitions(warpjoin_gpu PRIVATE WARPJOIN_SMALL_BLOCKS)
  endif()
  target_sources(warpjoin_core PRIVATE $<TARGET_OBJECTS:warpjoin_gpu>)
  # Static, so that the addon loads, and says that there is no GPU, where no CUDA is installed.
  target_link_libraries(warpjoin_core PUBLIC CUDA::cudart_static)

elseif(WARPJOIN_GPU STREQUAL "hip")
  set(architectures $ENV{WARPJOIN_HIP_ARCHITECTURES})
  if(NOT architectures)
    set(architectures gfx90a)
  endif()
  find_program(HIPCC hipcc HINTS /opt/rocm/bin REQUIRED)
  find_library(AMDHIP64 amdhip64 HINTS /opt/rocm/lib REQUIRED)
  set(HIP_FLAGS -x hip -std=c++20 -O3 -DNDEBUG -fPIC -Wall -DWARPJOIN_HIP "-I${CMAKE_CURRENT_SOURCE_DIR}/native")
  foreach(architecture ${architectures})
    list(APPEND HIP_FLAGS "--offload-arch=${architecture}")
  endforeach()
  string(REPLACE ";" "," architecture_list "${architectures}")
  list(APPEND HIP_FLAGS "-DWARPJOIN_GPU_ARCHITECTURES=\"${architecture_list}\"")
  foreach(source ${GPU_SOURCES})
    file(RELATIVE_PATH name "${CMAKE_CURRENT_SOURCE_DIR}/native" "${source}")
    set(object "${CMAKE_CURRENT_BINARY_DIR}/hip/${name}.o")
    get_filename_component(folder "${object}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND ${CMAKE_COMMAND} -E env HIP_PLATFORM=amd "${HIPCC}" ${HIP_FLAGS} -MD -MF "${object}.d" -MT "${object}" -c "${source}" -o "${object}"
      DEPENDS "${source}" DEPFILE "${object}.d" COMMENT "Building HIP object ${name}.o" VERBATIM)
    set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(warpjoin_core PRIVATE "${object}")
  endforeach()
  target_link_libraries(warpjoin_core PUBLIC "${AMDHIP64}")

else()
  message(FATAL_ERROR "WARPJOIN_GPU is '${WARPJOIN_GPU}'; expected auto, cuda, hip or none")
endif()
