// Matrix (MFMA) instructions.
#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {

std::span<const VectorOp> MatrixOps() { return {}; }

}  // namespace softgpu::valu
