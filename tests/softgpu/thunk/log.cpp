// One write() per line, so that lines of several processes stay whole.
#include "tests/softgpu/thunk/log.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace softgpu {
namespace {

void Print(const char* format, va_list args) {
  char line[2048];
  int n = snprintf(line, sizeof(line), "softgpu[%d]: ", static_cast<int>(getpid()));
  const int body = vsnprintf(line + n, sizeof(line) - n - 1, format, args);
  if (body > 0) n += body;
  if (n > static_cast<int>(sizeof(line)) - 2) n = sizeof(line) - 2;
  line[n++] = '\n';
  if (write(STDERR_FILENO, line, n) < 0) return;  // nowhere left to say it
}

bool Verbose() {
  static const bool verbose = [] {
    const char* value = getenv("SOFTGPU_LOG");
    return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
  }();
  return verbose;
}

}  // namespace

void Complain(const char* format, ...) {
  va_list args;
  va_start(args, format);
  Print(format, args);
  va_end(args);
}

void Log(const char* format, ...) {
  if (!Verbose()) return;
  va_list args;
  va_start(args, format);
  Print(format, args);
  va_end(args);
}

}  // namespace softgpu
