#include "daemon/digest.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"

namespace rjdbi::daemon {

std::string Sha256(std::string_view bytes) {
  std::string digest(32, '\0');
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
             EVP_sha256(), nullptr);
  return digest;
}

std::string Sha256(absl::Span<const uint8_t> bytes) {
  return Sha256(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

}  // namespace rjdbi::daemon
