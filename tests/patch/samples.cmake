# Small real code objects, compiled when the tests are built: two kernels for
# each processor and code object version. Tests find them as
# ${RJDBI_SAMPLE_OBJECTS}/<processor>_v<version>.co.
set(RJDBI_SAMPLE_OBJECTS ${CMAKE_CURRENT_BINARY_DIR}/samples)
file(MAKE_DIRECTORY ${RJDBI_SAMPLE_OBJECTS})
set(sample_files "")
foreach(sample gfx900:4 gfx908:5 gfx90a:4 gfx90a:5 gfx942:5 gfx1010:5 gfx1030:5 gfx1100:5 gfx1200:5
               gfx1030:6)
  string(REPLACE ":" ";" parts ${sample})
  list(GET parts 0 processor)
  list(GET parts 1 version)
  set(output ${RJDBI_SAMPLE_OBJECTS}/${processor}_v${version}.co)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${RJDBI_CLANG} -x cl -cl-std=CL2.0 -target amdgcn-amd-amdhsa -mcpu=${processor}
            -mcode-object-version=${version} -nogpulib -O2
            ${CMAKE_CURRENT_SOURCE_DIR}/samples.cl -o ${output}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/samples.cl VERBATIM)
  list(APPEND sample_files ${output})
endforeach()
add_custom_target(rjdbi_sample_objects DEPENDS ${sample_files})
