// Text as a JSON string.
#ifndef CLIENTS_JSON_TEXT_H_
#define CLIENTS_JSON_TEXT_H_

#include <string>
#include <string_view>

namespace rjdbi::clients {

// With its quotation marks; bytes that are not UTF-8 as patch::ToUtf8 writes them.
std::string JsonString(std::string_view text);

}  // namespace rjdbi::clients

#endif  // CLIENTS_JSON_TEXT_H_
