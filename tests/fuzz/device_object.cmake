rjdbi_fuzzer(device_object_fuzzer
  SOURCES device_object_fuzzer.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/device_object.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/elf_view.cpp
          ${PROJECT_SOURCE_DIR}/patch/codeobject/read_target.cpp
  LIBS absl::status absl::statusor absl::span absl::strings)
