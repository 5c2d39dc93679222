// Messages of the soft GPU's driver on stderr.
#ifndef TESTS_SOFTGPU_THUNK_LOG_H_
#define TESTS_SOFTGPU_THUNK_LOG_H_

namespace softgpu {

// Always printed: faults, and anything asked for that is not implemented.
void Complain(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Printed when SOFTGPU_LOG is set and not "0".
void Log(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_LOG_H_
