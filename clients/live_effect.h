// What attaching and detaching have come to in processes that were running already.
#ifndef CLIENTS_LIVE_EFFECT_H_
#define CLIENTS_LIVE_EFFECT_H_

#include <chrono>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "clients/control_client.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// Ids of the running processes' sessions that the attachment applies to.
absl::StatusOr<std::set<std::string>> ConcernedSessions(ControlClient& client,
                                                        const std::string& attachment);
// Waits until those that follow changes have taken over the newest, at most so long.
// UNAVAILABLE, too, when rjdbid is restarted meanwhile: its sessions are others then.
absl::StatusOr<v1::LiveEffect> WaitForEffect(ControlClient& client,
                                             const std::set<std::string>& sessions,
                                             std::chrono::seconds patience);
// For people: "in effect in 2 processes from the next dispatch on; ...". "": no process is
// concerned. `takes_effect`: there is something in those that have taken it over, as far as
// is known.
std::string EffectText(const v1::LiveEffect& effect, bool takes_effect);

}  // namespace rjdbi::clients

#endif  // CLIENTS_LIVE_EFFECT_H_
