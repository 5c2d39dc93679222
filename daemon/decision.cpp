#include "daemon/decision.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/digest.h"

namespace rjdbi::daemon {
namespace {

void AppendU64(std::string& out, uint64_t value) {
  char bytes[8];
  std::memcpy(bytes, &value, 8);
  out.append(bytes, 8);
}

void AppendBlock(std::string& out, std::string_view block) {
  AppendU64(out, block.size());
  out.append(block);
}

// Bounds-checked reading of what the two functions above wrote.
class Cursor {
 public:
  explicit Cursor(std::string_view rest) : rest_(rest) {}
  bool U64(uint64_t& value) {
    if (rest_.size() < 8) return false;
    std::memcpy(&value, rest_.data(), 8);
    rest_.remove_prefix(8);
    return true;
  }
  bool Block(std::string_view& block) {
    uint64_t size = 0;
    if (!U64(size) || size > rest_.size()) return false;
    block = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

v1::AttachmentSpec CanonicalSpec(v1::AttachmentSpec spec) {
  spec.clear_process_glob();
  spec.clear_pid();
  spec.clear_owner();
  return spec;
}

}  // namespace

v1::AdmitVerdict Decision::verdict() const {
  if (!patched.empty()) return v1::PATCHED;
  if (record.object_violations_size() > 0) return v1::ORIGINAL_REFUSED;
  for (const v1::Coverage& coverage : record.coverage()) {
    if (coverage.requested() > coverage.dry_run()) return v1::ORIGINAL_REFUSED;
  }
  return v1::ORIGINAL_NOT_SELECTED;
}

Question Question::Make(std::string sha256, const std::vector<v1::Attachment>& attachments) {
  Question question;
  question.sha256 = std::move(sha256);
  for (const v1::Attachment& asked : attachments) {
    v1::Attachment& attachment = question.wanted.emplace_back();
    *attachment.mutable_spec() = CanonicalSpec(asked.spec());
    attachment.set_id(absl::StrCat("#", question.ids.size()));
    question.ids.push_back(asked.id());
  }
  return question;
}

std::string Question::Key(const contract::Policy& policy) const {
  std::string text = absl::StrCat("rjdbi decision 2\n", contract::EngineVersion(), "\n");
  AppendBlock(text, sha256);
  AppendBlock(text, policy.ceiling.SerializeAsString());
  AppendBlock(text, policy.defaults.SerializeAsString());
  AppendU64(text, policy.allow_sabotage ? 1 : 0);
  AppendU64(text, static_cast<uint64_t>(policy.placement));
  AppendU64(text, policy.beside ? 1 : 0);
  AppendU64(text, policy.max_code_object_bytes);
  AppendU64(text, policy.max_attachments_per_object);
  AppendU64(text, policy.ring_half_bytes);
  AppendU64(text, policy.loop_factor);
  for (const auto& attachment : wanted) AppendBlock(text, attachment.spec().SerializeAsString());
  return Hex(Sha256(text));
}

std::string Encode(const Decision& decision) {
  std::string out;
  AppendBlock(out, decision.record.SerializeAsString());
  AppendU64(out, decision.fixups.size());
  for (const patch::WordFixup& fixup : decision.fixups) {
    AppendU64(out, fixup.offset);
    AppendU64(out, (fixup.high_half ? 1 : 0) | (fixup.base == patch::FixupBase::kOriginal ? 2 : 0));
    AppendU64(out, fixup.addend);
  }
  AppendU64(out, decision.switches.size());
  for (const contract::KernelSwitch& kernel : decision.switches) {
    AppendBlock(out, kernel.kernel);
    AppendU64(out, kernel.original_descriptor);
    AppendU64(out, kernel.descriptor);
    AppendU64(out, kernel.private_segment_bytes);
    AppendU64(out, kernel.group_segment_bytes);
  }
  AppendBlock(out, decision.patched);
  return out;
}

std::optional<Decision> DecodeDecision(std::shared_ptr<const std::string> bytes) {
  Cursor cursor(*bytes);
  Decision decision;
  std::string_view record, patched;
  uint64_t fixups = 0;
  if (!cursor.Block(record) || !cursor.U64(fixups) || fixups > bytes->size() / 24) {
    return std::nullopt;
  }
  if (!decision.record.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    return std::nullopt;
  }
  for (uint64_t i = 0; i < fixups; ++i) {
    patch::WordFixup fixup;
    uint64_t form = 0;
    if (!cursor.U64(fixup.offset) || !cursor.U64(form) || !cursor.U64(fixup.addend)) {
      return std::nullopt;
    }
    fixup.high_half = (form & 1) != 0;
    fixup.base = (form & 2) != 0 ? patch::FixupBase::kOriginal : patch::FixupBase::kCounters;
    decision.fixups.push_back(fixup);
  }
  uint64_t switches = 0;
  if (!cursor.U64(switches) || switches > bytes->size() / 40) return std::nullopt;
  for (uint64_t i = 0; i < switches; ++i) {
    contract::KernelSwitch& kernel = decision.switches.emplace_back();
    std::string_view name;
    uint64_t private_bytes = 0, group_bytes = 0;
    if (!cursor.Block(name) || !cursor.U64(kernel.original_descriptor) ||
        !cursor.U64(kernel.descriptor) || !cursor.U64(private_bytes) || !cursor.U64(group_bytes)) {
      return std::nullopt;
    }
    kernel.kernel = name;
    kernel.private_segment_bytes = static_cast<uint32_t>(private_bytes);
    kernel.group_segment_bytes = static_cast<uint32_t>(group_bytes);
  }
  if (!cursor.Block(patched) || !cursor.done()) return std::nullopt;
  decision.patched = patched;
  decision.storage = std::move(bytes);
  return decision;
}

std::string Summarise(const v1::AdmissionRecord& record) {
  if (record.object_violations_size() > 0) {
    const v1::Violation& first = record.object_violations(0);
    return absl::StrCat("refused: ", first.constraint_id(), ": ", first.message());
  }
  uint64_t requested = 0, attached = 0, dry_run = 0;
  for (const v1::Coverage& coverage : record.coverage()) {
    requested += coverage.requested();
    attached += coverage.attached() + coverage.degraded();
    dry_run += coverage.dry_run();
  }
  if (requested == 0) return "original: no attachment selects anything here";
  const std::string dry =
      dry_run == 0 ? "" : absl::StrCat(dry_run, " would be attached, but for a dry run");
  if (attached == 0 && dry_run > 0) {
    return absl::StrCat("original: ", dry, ", of ", requested, " sites");
  }
  return absl::StrCat(attached > 0 ? "patched: " : "refused: ", attached, " of ", requested,
                      " sites attached", dry.empty() ? "" : ", ", dry);
}

}  // namespace rjdbi::daemon
