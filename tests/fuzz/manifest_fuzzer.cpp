// libFuzzer entry: manifests as YAML. What is read must be read again, the same, from
// its own text.
#include <google/protobuf/util/message_differencer.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "contract/manifest_yaml.h"
#include "rjdbi/v1/contract.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto place = [](auto&&...) {};
  rjdbi::v1::Manifest manifest, back;
  if (!rjdbi::contract::ReadYaml(text, place, &manifest).ok()) return 0;
  const std::string written = rjdbi::contract::WriteYaml(manifest);
  if (!rjdbi::contract::ReadYaml(written, place, &back).ok() ||
      !google::protobuf::util::MessageDifferencer::Equals(manifest, back)) {
    std::abort();
  }
  return 0;
}
