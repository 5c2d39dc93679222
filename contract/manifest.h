// Manifests: what each probe promises, as text that people read and the engine
// parses. A violation can name the line of the promise it breaks.
#ifndef CONTRACT_MANIFEST_H_
#define CONTRACT_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "patch/plan/rewriter.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

class Manifest {
 public:
  // Protobuf text, or YAML with the same names (manifest_yaml.h).
  // INVALID_ARGUMENT: "line L, column C: ..." (both 1-based) for text that does
  // not parse, or that breaks a rule of the schema.
  static absl::StatusOr<Manifest> Parse(std::string_view text);

  const v1::Manifest& proto() const { return proto_; }
  const std::string& text() const { return text_; }
  // 1-based line on which a field is first set; for a field that is absent, the
  // line of `probe`. Fields of the amdgpu section are named "amdgpu.reads".
  // An element of a repeated field is "user.arguments[2]".
  uint32_t LineOf(std::string_view field) const;
  uint32_t ColumnOf(std::string_view field) const;  // 1-based

  bool Declares(v1::MemoryRegion region) const;
  bool Declares(v1::ControlTransfer control) const;
  bool Declares(v1::Synchronisation sync) const;
  bool DeclaresRead(std::string_view state) const;
  bool DeclaresChange(std::string_view state) const;

 private:
  absl::Status Read();  // text_ into proto_ and places_

  v1::Manifest proto_;
  std::string text_;
  struct Place {
    uint32_t line = 0, column = 0;  // 1-based; line 0: nowhere
  };
  Place PlaceOf(std::string_view field) const;
  std::map<std::string, Place, std::less<>> places_;
  friend class PlaceCollector;
};

// The line that an error of Manifest::Parse speaks of, and a caret below its column;
// "": it speaks of none.
std::string ManifestExcerpt(std::string_view text, const absl::Status& error);

// Built-in probes, ordered by name.
struct BuiltinProbe {
  std::string name;
  patch::Probe probe;
  bool per_block;  // one site counts for every requested instruction of its basic block
  Manifest manifest;
};
const std::vector<BuiltinProbe>& BuiltinProbes();
const BuiltinProbe* FindProbe(std::string_view name);  // nullptr: no such probe
std::string ProbeNames();                              // "count-lanes, count-waves, ..."

namespace internal {
struct EmbeddedManifest {
  const char* name;
  const char* text;
};
extern const EmbeddedManifest kEmbeddedManifests[];
extern const size_t kEmbeddedManifestCount;
}  // namespace internal

}  // namespace rjdbi::contract

#endif  // CONTRACT_MANIFEST_H_
