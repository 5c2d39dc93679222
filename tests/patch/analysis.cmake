add_library(rjdbi_analysis_assemble STATIC analysis_assemble.cpp)
target_link_libraries(rjdbi_analysis_assemble PUBLIC rjdbi_analysis PRIVATE rjdbi_warnings
                                                     GTest::gtest)
target_compile_definitions(rjdbi_analysis_assemble PRIVATE RJDBI_CLANG="${RJDBI_CLANG}")

rjdbi_test(analysis_test SOURCES analysis_selector_test.cpp analysis_liveness_test.cpp
                                 analysis_pending_test.cpp analysis_immovable_test.cpp
                                 analysis_capability_test.cpp analysis_equal_counts_test.cpp
                                 analysis_loops_test.cpp
           LIBS rjdbi_analysis rjdbi_analysis_assemble LABELS patch)
