// rocSPARSE csrmv, y = alpha A x + beta y, with and without its analysis step
// (two different kernels). The values are small multiples of 1/4, so every sum
// is exact in float in any order.
#include <rocsparse/rocsparse.h>

#include "tests/programs/hip_check.h"

#define ROCSPARSE_CHECK(call)                                            \
  do {                                                                   \
    const rocsparse_status rocsparse_check_status = (call);              \
    if (rocsparse_check_status != rocsparse_status_success) {            \
      std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, \
                   static_cast<int>(rocsparse_check_status));            \
      std::puts("FAIL");                                                 \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

namespace {

constexpr float kAlpha = 2.0f, kBeta = -0.5f;

struct Csr {
  int rows = 0, columns = 0;
  std::vector<rocsparse_int> row_begin, column;
  std::vector<float> value;
};

// Rows of very different lengths, some empty, a few long ones.
Csr MakeMatrix(int rows) {
  Csr m;
  m.rows = rows;
  m.columns = rows + 37;
  m.row_begin.push_back(0);
  uint32_t state = 1;
  for (int row = 0; row < rows; ++row) {
    state = state * 1664525u + 1013904223u;
    const int length = row % 61 == 60 ? m.columns / 2 : static_cast<int>(state >> 28);
    for (int k = 0; k < length; ++k) {
      m.column.push_back(k * 2 + row % 2);
      m.value.push_back(0.25f * static_cast<float>((row * 5 + k * 3) % 17 - 8));
    }
    m.row_begin.push_back(static_cast<rocsparse_int>(m.column.size()));
  }
  return m;
}

std::vector<float> Multiply(const Csr& m, const std::vector<float>& x, std::vector<float> y) {
  for (int row = 0; row < m.rows; ++row) {
    float sum = 0;
    for (int k = m.row_begin[row]; k < m.row_begin[row + 1]; ++k) {
      sum += m.value[k] * x[m.column[k]];
    }
    y[row] = kAlpha * sum + kBeta * y[row];
  }
  return y;
}

}  // namespace

int main(int argc, char** argv) {
  WaitAsleep();
  const Csr m = MakeMatrix(SizeArgument(argc, argv, 400));
  std::vector<float> x(m.columns), y(m.rows);
  for (int i = 0; i < m.columns; ++i) x[i] = 0.25f * static_cast<float>(i % 23 - 11);
  for (int i = 0; i < m.rows; ++i) y[i] = static_cast<float>(i % 19);
  const std::vector<float> want = Multiply(m, x, y);

  rocsparse_handle handle;
  rocsparse_mat_descr description;
  rocsparse_mat_info info;
  ROCSPARSE_CHECK(rocsparse_create_handle(&handle));
  ROCSPARSE_CHECK(rocsparse_create_mat_descr(&description));
  ROCSPARSE_CHECK(rocsparse_create_mat_info(&info));
  DeviceBuffer<rocsparse_int> row_begin(m.row_begin), column(m.column);
  DeviceBuffer<float> value(m.value), dx(x);
  const auto nnz = static_cast<rocsparse_int>(m.value.size());
  auto multiply = [&](rocsparse_mat_info analysis) {
    DeviceBuffer<float> dy(y);
    ROCSPARSE_CHECK(rocsparse_scsrmv(handle, rocsparse_operation_none, m.rows, m.columns, nnz,
                                     &kAlpha, description, value.get(), row_begin.get(),
                                     column.get(), analysis, dx.get(), &kBeta, dy.get()));
    return dy.Download();
  };
  Verdict verdict;
  verdict.Expect("plain", multiply(nullptr), want);
  ROCSPARSE_CHECK(rocsparse_scsrmv_analysis(handle, rocsparse_operation_none, m.rows, m.columns,
                                            nnz, description, value.get(), row_begin.get(),
                                            column.get(), info));
  verdict.Expect("analysed", multiply(info), want);
  ROCSPARSE_CHECK(rocsparse_destroy_mat_info(info));
  ROCSPARSE_CHECK(rocsparse_destroy_mat_descr(description));
  ROCSPARSE_CHECK(rocsparse_destroy_handle(handle));
  return verdict.Finish();
}
