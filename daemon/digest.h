// SHA-256 and hexadecimal, as the daemon's keys use them.
#ifndef DAEMON_DIGEST_H_
#define DAEMON_DIGEST_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace rjdbi::daemon {

std::string Sha256(std::string_view bytes);  // 32 raw bytes
std::string Sha256(absl::Span<const uint8_t> bytes);
std::string Hex(std::string_view bytes);  // lower case

inline absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace rjdbi::daemon

#endif  // DAEMON_DIGEST_H_
