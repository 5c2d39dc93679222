# What operators write about their probes; rjdbid reads it through its control socket.
rjdbi_fuzzer(manifest_fuzzer
  SOURCES manifest_fuzzer.cpp ${PROJECT_SOURCE_DIR}/contract/manifest_yaml.cpp
  LIBS rjdbi_contract yaml-cpp)
