// Attachments that attached nowhere. Whatever ran, nothing of theirs was observed:
// said aloud, and exit code 3.
#ifndef CLIENTS_VACUOUS_H_
#define CLIENTS_VACUOUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "clients/output.h"
#include "rjdbi/v1/contract.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

struct Vacuous {
  std::string id;
  uint64_t kernels = 0;    // that it matched
  uint64_t requested = 0;  // sites, every one refused
  std::string left_out;    // the constraint that keeps it out of whole objects
  std::string reasons;     // that sites were refused for: "RJD-B001 x3, ..."
};

// Of the attachments with coverage, in the order of their ids.
std::vector<Vacuous> FindVacuous(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage);
// Those that matched no kernel included; not those that running processes have yet to take
// over (pending_processes).
std::vector<Vacuous> FindVacuous(const v1::GetCoverageReply& reply);

// "warning: a1 is vacuous, it attached nowhere: no kernel matches 'x'; ..." `hint`: what
// was probably meant, or how to see what there is.
void WarnVacuous(const Output& out, const Vacuous& vacuous, const v1::AttachmentSpec& spec,
                 const std::string& hint);

}  // namespace rjdbi::clients

#endif  // CLIENTS_VACUOUS_H_
