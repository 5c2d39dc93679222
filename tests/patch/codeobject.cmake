add_library(rjdbi_hostile STATIC codeobject_hostile.cpp)
target_link_libraries(rjdbi_hostile PUBLIC rjdbi_codeobject PRIVATE rjdbi_warnings)

rjdbi_test(codeobject_test
           SOURCES codeobject_test.cpp codeobject_writer_test.cpp codeobject_metadata_test.cpp
                   codeobject_bundle_test.cpp
           LIBS rjdbi_codeobject LABELS patch)
rjdbi_test(codeobject_hostile_test SOURCES codeobject_hostile_test.cpp
           LIBS rjdbi_codeobject rjdbi_hostile LABELS patch)
foreach(test codeobject_test codeobject_hostile_test)
  target_compile_definitions(${test} PRIVATE RJDBI_SAMPLE_OBJECTS="${RJDBI_SAMPLE_OBJECTS}"
                                             RJDBI_READELF="${RJDBI_READELF}")
  add_dependencies(${test} rjdbi_sample_objects)
endforeach()
