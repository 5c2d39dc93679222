rjdbi_test(isa_test SOURCES isa_register_set_test.cpp isa_decode_test.cpp isa_assemble_test.cpp
           LIBS rjdbi_isa LABELS patch)
rjdbi_test(isa_generation_test SOURCES isa_generation_test.cpp LIBS rjdbi_isa LABELS patch)
target_compile_definitions(isa_generation_test PRIVATE RJDBI_LLC="${RJDBI_LLC}")
rjdbi_test(isa_prefix_test SOURCES isa_prefix_test.cpp LIBS rjdbi_isa rjdbi_llvm LABELS patch)
