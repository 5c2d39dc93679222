// See the header.
#include "clients/json_text.h"

#include "absl/strings/str_format.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::clients {

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : patch::ToUtf8(text)) {
    if (static_cast<unsigned char>(c) < 0x20) {
      out += absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace rjdbi::clients
