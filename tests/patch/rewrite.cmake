rjdbi_test(rewrite_test SOURCES rewrite_golden_test.cpp rewrite_registers_test.cpp
                                rewrite_placement_test.cpp rewrite_clone_test.cpp
                                rewrite_record_golden_test.cpp
           LIBS rjdbi_rewrite rjdbi_analysis_assemble LABELS patch)

rjdbi_test(rewrite_softgpu_test SOURCES rewrite_softgpu_test.cpp
           LIBS rjdbi_rewrite rjdbi_analysis_assemble softgpu_testing LABELS patch TIMEOUT 900)
target_compile_definitions(rewrite_softgpu_test
                           PRIVATE SOFTGPU_KERNEL_DIR="${CMAKE_BINARY_DIR}/tests/softgpu/interp")
add_dependencies(rewrite_softgpu_test softgpu_kernels)

find_library(RJDBI_ROCRAND_LIBRARY NAMES librocrand.so.1 rocrand REQUIRED)
find_library(RJDBI_ROCSPARSE_LIBRARY NAMES librocsparse.so.0 rocsparse REQUIRED)
rjdbi_test(rewrite_corpus_test SOURCES rewrite_corpus_test.cpp
           LIBS rjdbi_rewrite rjdbi_offload_bundle LABELS corpus TIMEOUT 900)
target_compile_definitions(rewrite_corpus_test PRIVATE RJDBI_ROCRAND="${RJDBI_ROCRAND_LIBRARY}"
                                                       RJDBI_ROCSPARSE="${RJDBI_ROCSPARSE_LIBRARY}")

rjdbi_test(rewrite_clone_softgpu_test SOURCES rewrite_clone_softgpu_test.cpp
           LIBS rjdbi_rewrite rjdbi_analysis_assemble softgpu_testing LABELS patch TIMEOUT 900)
target_compile_definitions(rewrite_clone_softgpu_test
                           PRIVATE SOFTGPU_KERNEL_DIR="${CMAKE_BINARY_DIR}/tests/softgpu/interp")
add_dependencies(rewrite_clone_softgpu_test softgpu_kernels)

rjdbi_test(rewrite_triton_softgpu_test SOURCES triton_softgpu_test.cpp
           LIBS rjdbi_rewrite rjdbi_analysis_assemble softgpu_testing LABELS patch TIMEOUT 300)
