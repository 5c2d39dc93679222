rjdbi_fuzzer(code_object_fuzzer
  SOURCES code_object_fuzzer.cpp ${PROJECT_SOURCE_DIR}/tests/patch/codeobject_hostile.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/code_object.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/code_object_writer.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/debug_info.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/dwarf_lines.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/elf_view.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/metadata.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/printable.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/read_target.cpp
  LIBS absl::status absl::statusor absl::span absl::strings)

rjdbi_test(code_object_replay_test SOURCES code_object_replay_test.cpp
           LIBS rjdbi_codeobject rjdbi_hostile LABELS fuzz)
target_compile_definitions(code_object_replay_test PRIVATE
  RJDBI_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/code_object_corpus")
