#include "clients/live_effect.h"

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rjdbi::clients {
namespace {

constexpr std::chrono::milliseconds kPoll{20};

std::string Processes(uint32_t n) { return absl::StrCat(n, n == 1 ? " process" : " processes"); }

}  // namespace

absl::StatusOr<std::set<std::string>> ConcernedSessions(ControlClient& client,
                                                        const std::string& attachment) {
  v1::GetStatusRequest request;
  request.set_concerned_by(attachment);
  v1::GetStatusReply status;
  if (absl::Status s = client.GetStatus(request, status); !s.ok()) return s;
  std::set<std::string> sessions;
  for (const v1::Session& session : status.sessions()) sessions.insert(session.id());
  return sessions;
}

absl::StatusOr<v1::LiveEffect> WaitForEffect(ControlClient& client,
                                             const std::set<std::string>& sessions,
                                             std::chrono::seconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  int64_t started = 0;
  while (true) {
    v1::LiveEffect effect;
    if (sessions.empty()) return effect;
    v1::GetStatusReply status;
    if (absl::Status s = client.GetStatus({}, status); !s.ok()) return s;
    if (started != 0 && status.started_unix_ns() != started) {
      return absl::UnavailableError("rjdbid was restarted during the wait; see rjctl status");
    }
    started = status.started_unix_ns();
    effect.set_ended(static_cast<uint32_t>(sessions.size()));
    for (const v1::Session& session : status.sessions()) {
      if (session.closed_unix_ns() != 0 || sessions.count(session.id()) == 0) continue;
      effect.set_ended(effect.ended() - 1);
      if (session.live() == v1::LIVE_CURRENT) {
        effect.set_current(effect.current() + 1);
      } else if (session.live() == v1::LIVE_APPLYING) {
        effect.set_applying(effect.applying() + 1);
      } else {
        effect.set_not_reached(effect.not_reached() + 1);
      }
    }
    if (effect.applying() == 0 || std::chrono::steady_clock::now() >= end) return effect;
    std::this_thread::sleep_for(kPoll);
  }
}

std::string EffectText(const v1::LiveEffect& effect, bool takes_effect) {
  std::vector<std::string> parts;
  if (effect.current() > 0) {
    parts.push_back(takes_effect ? absl::StrCat("in effect in ", Processes(effect.current()),
                                                " from the next dispatch on")
                                 : absl::StrCat("taken over by ", Processes(effect.current())));
  }
  if (effect.applying() > 0) {
    parts.push_back(absl::StrCat("on its way to ", Processes(effect.applying()), " (see status)"));
  }
  if (effect.not_reached() > 0) {
    parts.push_back(absl::StrCat(Processes(effect.not_reached()),
                                 " cannot follow while running: what they load from now on is "
                                 "affected (those follow that were started by rjctl run, or with "
                                 "the agent in HSA_TOOLS_LIB)"));
  }
  if (effect.ended() > 0) {
    parts.push_back(absl::StrCat(Processes(effect.ended()), " ended meanwhile"));
  }
  if (effect.patched_at_load() > 0) {
    parts.push_back(absl::StrCat(Processes(effect.patched_at_load()),
                                 " loaded kernels with it in place and go on with them"));
  }
  if (effect.loaded_before() > 0) {
    parts.push_back(absl::StrCat(Processes(effect.loaded_before()),
                                 " loaded code before rjdbid was started: kernels that were "
                                 "patched for it then go on with it"));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace rjdbi::clients
