# What operators write; it reaches rjdbid through its control socket.
rjdbi_fuzzer(selector_fuzzer
  SOURCES selector_fuzzer.cpp
          ${PROJECT_SOURCE_DIR}/patch/analysis/glob.cpp
          ${PROJECT_SOURCE_DIR}/patch/analysis/selector.cpp
          ${PROJECT_SOURCE_DIR}/patch/analysis/selector_families.cpp
  LIBS rjdbi_analysis)
