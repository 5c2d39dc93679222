// One admission decision as the cache keeps it, and the key it is kept under.
#ifndef DAEMON_DECISION_H_
#define DAEMON_DECISION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/admission.h"
#include "patch/plan/rewriter.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::daemon {

// Attachments are numbered, not named, in a cached record: "#0" is the first of
// the request's attachments. Ids change, decisions don't.
struct Decision {
  v1::AdmissionRecord record;
  std::string_view patched;  // empty: load the original
  // What `patched` lies in: itself, or the cache's entry as it was read.
  std::shared_ptr<const std::string> storage;
  std::vector<patch::WordFixup> fixups;
  std::vector<contract::KernelSwitch> switches;  // of an image beside the original

  v1::AdmitVerdict verdict() const;
};

// What is asked of one code object.
struct Question {
  std::string sha256;                  // 32 raw bytes
  std::vector<v1::Attachment> wanted;  // oldest first; ids "#0", "#1", ...
  std::vector<std::string> ids;        // real ids, same order

  // Keeps the order, in which attachments have precedence, and renames. Process, pid
  // and owner, which are decided already, are left out.
  static Question Make(std::string sha256, const std::vector<v1::Attachment>& attachments);
  std::string Key(const contract::Policy& policy) const;  // 64 hex digits
};

std::string Encode(const Decision& decision);
// nullopt: not an encoded decision.
std::optional<Decision> DecodeDecision(std::shared_ptr<const std::string> bytes);

// One line for logs and agents: "patched: 12 of 14 sites attached".
std::string Summarise(const v1::AdmissionRecord& record);

}  // namespace rjdbi::daemon

#endif  // DAEMON_DECISION_H_
