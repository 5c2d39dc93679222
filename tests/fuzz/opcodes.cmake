# Tables of hardware decode profilers, and our own as text: files that people are given.
rjdbi_fuzzer(opcodes_fuzzer
  SOURCES opcodes_fuzzer.cpp
          ${PROJECT_SOURCE_DIR}/clients/opcodes/blob.cpp
          ${PROJECT_SOURCE_DIR}/clients/opcodes/table.cpp
  LIBS rjdbi_contract rjdbi_analysis OpenSSL::Crypto yaml-cpp absl::str_format)
