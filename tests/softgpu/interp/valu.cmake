# Tests of the vector ALU.
rjdbi_test(softgpu_valu_test SOURCES valu_ops_test.cpp LIBS softgpu_interp LABELS softgpu)
