rjdbi_test(isa_test SOURCES isa_register_set_test.cpp isa_decode_test.cpp isa_assemble_test.cpp
           LIBS rjdbi_isa LABELS patch)
rjdbi_test(isa_generation_test SOURCES isa_generation_test.cpp LIBS rjdbi_isa LABELS patch)
rjdbi_test(isa_hazards_test SOURCES isa_hazards_test.cpp LIBS rjdbi_isa LABELS patch)
foreach(test isa_generation_test isa_hazards_test)
  target_compile_definitions(${test} PRIVATE RJDBI_LLC="${RJDBI_LLC}")
endforeach()
rjdbi_test(isa_prefix_test SOURCES isa_prefix_test.cpp LIBS rjdbi_isa rjdbi_llvm LABELS patch)
