// Manifests as YAML: the fields and names of contract.proto's Manifest, for people
// who write no protobuf text. Says where each field stands, and where an error is.
#ifndef CONTRACT_MANIFEST_YAML_H_
#define CONTRACT_MANIFEST_YAML_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace rjdbi::contract {

// Whether a text that is no protobuf text was meant as YAML: it begins with "---", or
// no field in it is followed by a brace.
bool LooksLikeYaml(std::string_view text);

// Called for each field that is set, "amdgpu.reads", and each element of a repeated
// one, "amdgpu.reads[2]". Both numbers are 1-based.
using FieldPlace = std::function<void(const std::string& field, uint32_t line, uint32_t column)>;

// Fills the message, which must be empty.
// INVALID_ARGUMENT: "line L, column C: ...": what is not YAML, unknown or repeated
// fields, values of another type or out of range, more than one document.
absl::Status ReadYaml(std::string_view text, const FieldPlace& place,
                      google::protobuf::Message* message);

// What ReadYaml reads back; strings are quoted.
std::string WriteYaml(const google::protobuf::Message& message);

}  // namespace rjdbi::contract

#endif  // CONTRACT_MANIFEST_YAML_H_
