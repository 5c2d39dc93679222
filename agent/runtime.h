// Everything the agent knows in this process, made at the first code object or queue.
//
// It belongs to one pid. A forked child starts over: the parent's connection is
// the parent's, its GPU state does not survive fork, its threads are gone and
// its locks may be held by them. So nothing inherited is touched again but the
// descriptor, which the child closes; the memory stays, unused.
#ifndef RJDBI_AGENT_RUNTIME_H_
#define RJDBI_AGENT_RUNTIME_H_

#include <sys/types.h>

#include <atomic>

#include "agent/beside_loads.h"
#include "agent/config.h"
#include "agent/daemon_client/client.h"
#include "agent/dispatch_switch.h"
#include "agent/drainer.h"
#include "agent/gaps.h"
#include "agent/loaded_objects.h"
#include "agent/patched_loads.h"
#include "agent/queues.h"
#include "agent/reader_registry.h"
#include "agent/reporter.h"
#include "agent/watcher.h"

namespace rjdbi::agent {

struct Runtime {
  explicit Runtime(Config c);

  // This process's, or null when memory is short or RJDBI_DISABLE is set.
  static Runtime* Current() noexcept;
  // The same, but never made by this call.
  static Runtime* Existing() noexcept;

  const pid_t pid;
  const Config config;
  GapLog gaps;
  ReaderRegistry readers;       // by hsa_code_object_reader_t
  ReaderRegistry code_objects;  // by the deprecated hsa_code_object_t
  PatchedLoads loads;
  BatchQueue batches;
  DaemonClient client;
  Reporter reporter;
  Drainer drainer;
  LoadedObjects loaded;
  SwitchTable switches;
  Queues queues;
  BesideLoads beside;
  DaemonClient live_client;  // borrows sessions of `client`
  Watcher watcher;
  std::atomic<uint64_t> next_load_id{1};
  Runtime* inherited = nullptr;  // the parent's, unusable
};

// How the agent came to see HSA calls, for the daemon's records.
enum class LoadedThrough { kPreload = 1, kToolsLib = 2 };
void NoteLoadedThrough(LoadedThrough how);
std::string LoadedThroughText();

// Last report and goodbye. Bounded by the remaining budget.
void FinishAtExit() noexcept;

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_RUNTIME_H_
