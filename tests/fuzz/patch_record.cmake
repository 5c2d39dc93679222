# What patched objects say of themselves; rjdbid and rjctl read it.
rjdbi_fuzzer(patch_record_fuzzer
  SOURCES patch_record_fuzzer.cpp
          ${PROJECT_SOURCE_DIR}/contract/address_map.cpp
          ${PROJECT_SOURCE_DIR}/contract/code_pieces.cpp
          ${PROJECT_SOURCE_DIR}/contract/patch_record.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/appendix.cpp
  LIBS rjdbi_contract OpenSSL::Crypto ZLIB::ZLIB)
if(RJDBI_FUZZ)
  add_dependencies(patch_record_fuzzer rjdbi_sample_objects)
  target_compile_definitions(patch_record_fuzzer PRIVATE
    RJDBI_FUZZ_SAMPLE="${CMAKE_BINARY_DIR}/tests/patch/samples/gfx1030_v5.co")
endif()
