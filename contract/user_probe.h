// A user's probe as an attachment brings it: an object, and a manifest that says
// which function of it is the probe and what to pass.
#ifndef CONTRACT_USER_PROBE_H_
#define CONTRACT_USER_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "contract/manifest.h"
#include "patch/codeobject/device_object.h"
#include "patch/isa/isa.h"
#include "patch/probe/user_probe.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

inline constexpr size_t kMaxProbeManifest = size_t{64} << 10;
inline constexpr uint32_t kMaxTelemetryWords = 512;  // per site

class UserProbeFile {
 public:
  // Reads what the specification holds; it must outlive the result. Violations:
  // what is wrong with the object, the manifest, or the two together, every
  // function that the manifest speaks of included.
  static std::variant<UserProbeFile, std::vector<v1::Violation>> Read(
      const v1::AttachmentSpec& spec);

  const Manifest& manifest() const { return manifest_; }
  const std::vector<patch::ProbeArgument>& arguments() const { return arguments_; }

  // The probe for kernels of a code object. `isa` is the kernel's and must outlive
  // the result. A violation: it is compiled for other ones.
  std::variant<patch::UserProbe, v1::Violation> For(const patch::TargetId& target,
                                                    patch::Isa& isa) const;

 private:
  friend class UserProbeReader;
  Manifest manifest_;
  std::vector<patch::DeviceObject> objects_;  // with the function
  std::vector<patch::ProbeArgument> arguments_;
};

bool BringsProbe(const v1::AttachmentSpec& spec);

// The objects of a file: itself, or those of an offload bundle. What is wrong is
// added to `violations`.
std::vector<patch::DeviceObject> ReadDeviceObjects(absl::Span<const uint8_t> file,
                                                   std::vector<v1::Violation>* violations);

// The wavefront size that code for the processor has when nothing is said.
uint32_t DefaultWavefrontSize(std::string_view processor);

std::string FunctionDigest(const patch::DeviceFunction& function);

v1::Violation MakeViolation(const patch::BodyRefusal& refusal);

// RJD-U017 for a text that is empty, or longer than kMaxProbeManifest.
std::optional<v1::Violation> UnfitManifestSize(std::string_view text);

// RJD-U017 with the place, for a text that Manifest::Parse refuses.
v1::Violation UnreadableManifest(std::string_view text, const absl::Status& error);

// nullopt: it names nothing that can be passed.
std::optional<patch::ProbeArgument> ToArgument(const v1::ProbeArgument& argument);

// "s7", "s[4:5]", "v3", "v[2:3]", "vcc": one or two registers.
std::optional<patch::ProbeArgument> ParseRegisterArgument(std::string_view text);

}  // namespace rjdbi::contract

#endif  // CONTRACT_USER_PROBE_H_
