# The addon (target warpjoin), and beside one for GPUs that for the processor alone (warpjoin_processor).
# They need nothing but glibc, of the version that scripts/pack/libc.mjs names, whatever this system has.
set(modules "${CMAKE_CURRENT_SOURCE_DIR}/node_modules")
file(READ package.json package)
string(JSON version GET "${package}" version)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS package.json)

warpjoin_sources(binding BINDING_SOURCES)
warpjoin_units(6 "${BINDING_SOURCES}" BINDING_UNITS)
add_library(warpjoin_binding OBJECT ${BINDING_UNITS})
target_include_directories(warpjoin_binding SYSTEM PRIVATE "${modules}/node-api-headers/include" "${modules}/node-addon-api")
# Swallow: a terminated worker can throw nothing into JavaScript any more, and must not end the process instead.
target_compile_definitions(warpjoin_binding PRIVATE NAPI_VERSION=8 NODE_ADDON_API_CPP_EXCEPTIONS NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS
                           WARPJOIN_VERSION="${version}")
target_link_libraries(warpjoin_binding PUBLIC warpjoin_host)

if(NOT WARPJOIN_SANITIZE)
  set(libc "${CMAKE_CURRENT_BINARY_DIR}/libc")
  execute_process(COMMAND node scripts/pack/libc.mjs "${libc}" "${CMAKE_CXX_COMPILER}" WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
                  COMMAND_ERROR_IS_FATAL ANY)
endif()

function(warpjoin_addon name core)
  add_library(${name} MODULE $<TARGET_OBJECTS:warpjoin_binding>)
  target_link_libraries(${name} PRIVATE ${core})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".node")
  if(libc)
    target_sources(${name} PRIVATE native/binding/older_libc.cc)
    target_link_options(${name} PRIVATE "-L${libc}" -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--gc-sections)
  endif()
endfunction()

warpjoin_addon(warpjoin warpjoin_core)
if(NOT WARPJOIN_GPU STREQUAL "none")
  warpjoin_addon(warpjoin_processor warpjoin_processor_core)
endif()
if(WARPJOIN_FAILING_NEW)
  target_sources(warpjoin PRIVATE test/native/failing_new.cc)
  # With a standard library of its own, so that its allocations are meant, and nobody else's.
  target_link_options(warpjoin PRIVATE -static-libstdc++ -Wl,-Bsymbolic)
endif()
if(WARPJOIN_FAR_GPUS)
  # In place of device/gpu_device_none.cc, which the linker then has no need of.
  target_sources(warpjoin PRIVATE test/native/far_gpus.cc)
  target_include_directories(warpjoin PRIVATE test/native)
endif()
