// Files that the offline verbs read and write.
#ifndef CLIENTS_FILES_H_
#define CLIENTS_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "clients/verbs.h"

namespace rjdbi::clients {

// INVALID_ARGUMENT: it cannot be read, or is larger than a code object can be.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// Whole or not at all. INVALID_ARGUMENT: it cannot be written.
absl::Status WriteFile(const std::string& path, std::string_view bytes);

inline absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view AsText(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool IsElf(const std::string& bytes);
// What the file is, when it is not a code object but something that holds some.
std::string WrongKind(const std::string& bytes);
// Says why `file` cannot be worked on, with what to give instead; the exit code.
int FailOnFile(const Context& context, const std::string& file, const std::string& bytes,
               const absl::Status& status);

}  // namespace rjdbi::clients

#endif  // CLIENTS_FILES_H_
