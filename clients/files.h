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

// A code object. INVALID_ARGUMENT: it is no regular file, cannot be read, or is larger
// than a code object can be.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// A probe's object or manifest. As above.
absl::StatusOr<std::string> ReadProbeFile(const std::string& path);
// An opcode table or map, as text or as a blob. As above.
absl::StatusOr<std::string> ReadOpcodeFile(const std::string& path);
// Whether both paths lead to one file, be it there or not.
bool OneFile(const std::string& a, const std::string& b);
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
// Says so, if it is; for an answer that is given all the same.
void NoteWrongKind(const Context& context, const std::string& file, const std::string& bytes);
// Says that a file has no kernel that `kernel` ("": any) matches, and what is near.
void NoteNoKernel(const Context& context, const std::string& bytes, const std::string& kernel);
// Says why `file` cannot be worked on, with what to give instead; the exit code.
int FailOnFile(const Context& context, const std::string& file, const std::string& bytes,
               const absl::Status& status);

}  // namespace rjdbi::clients

#endif  // CLIENTS_FILES_H_
