# The example that ships, compiled as docs/user-probes.md says, by the compilers
# that are here: ${RJDBI_PROBE_OBJECTS}/<processor>.<hip|cl>.<clang's major>.o
find_program(RJDBI_CLANG15 NAMES clang-15 REQUIRED)
set(RJDBI_PROBE_OBJECTS ${CMAKE_CURRENT_BINARY_DIR}/probes)
file(MAKE_DIRECTORY ${RJDBI_PROBE_OBJECTS})
set(probe_header ${PROJECT_SOURCE_DIR}/deploy/include/rjdbi/probe.h)
set(probe_example ${PROJECT_SOURCE_DIR}/deploy/examples/misaligned.hip)
set(probe_files "")
function(rjdbi_probe_object processor language version compiler)
  set(output ${RJDBI_PROBE_OBJECTS}/${processor}.${language}.${version}.o)
  set(source ${probe_example})
  if(ARGC GREATER 4)
    get_filename_component(name ${ARGV4} NAME_WE)
    set(output ${RJDBI_PROBE_OBJECTS}/${processor}.${name}.${version}.o)
    set(source ${ARGV4})
  endif()
  if(language STREQUAL hip)
    set(options -x hip --offload-device-only --no-gpu-bundle-output --offload-arch=${processor}
                -nogpuinc)
  else()
    set(options -x cl -cl-std=CL2.0 -target amdgcn-amd-amdhsa -mcpu=${processor})
  endif()
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${compiler} ${options} -nogpulib -O2 -Wall -Wextra -Werror
            -I ${PROJECT_SOURCE_DIR}/deploy/include -c ${source} -o ${output}
    DEPENDS ${source} ${probe_header} VERBATIM)
  set(probe_files ${probe_files} ${output} PARENT_SCOPE)
endfunction()
foreach(processor gfx900 gfx90a gfx942 gfx1010 gfx1030 gfx1100 gfx1201)
  rjdbi_probe_object(${processor} hip 19 ${RJDBI_CLANG})
  rjdbi_probe_object(${processor} hip 19 ${RJDBI_CLANG} ${CMAKE_CURRENT_LIST_DIR}/loops.hip)
endforeach()
rjdbi_probe_object(gfx90a cl 19 ${RJDBI_CLANG})
rjdbi_probe_object(gfx90a hip 15 ${RJDBI_CLANG15})
rjdbi_probe_object(gfx1030 hip 15 ${RJDBI_CLANG15})
rjdbi_probe_object(gfx1030 cl 15 ${RJDBI_CLANG15})
add_custom_target(rjdbi_probe_objects DEPENDS ${probe_files})

rjdbi_test(probe_test SOURCES probe_object_test.cpp probe_body_test.cpp probe_rename_test.cpp
           LIBS rjdbi_probe LABELS patch)
target_compile_definitions(probe_test PRIVATE RJDBI_PROBE_OBJECTS="${RJDBI_PROBE_OBJECTS}")
add_dependencies(probe_test rjdbi_probe_objects)
