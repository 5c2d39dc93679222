// One Runtime per pid, fork and exit; see runtime.h.
#include "agent/runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "agent/hsa_api.h"

namespace rjdbi::agent {
namespace {

// At exit, for the watcher: it may be loading something, and ROCR is about to go. It does
// not wait for a daemon then.
constexpr int64_t kWatcherPatienceNs = 1'000 * kNsPerMs;

std::atomic<Runtime*> g_runtime{nullptr};
std::atomic<uint32_t> g_loaded_through{0};
std::atomic<bool> g_fork_handler{false};

// In the child, before it can do anything else. Allocates nothing, takes no lock.
void AfterForkInChild() {
  Runtime* parents = g_runtime.load();
  if (!parents) return;
  parents->client.AbandonAfterFork();
  parents->live_client.AbandonAfterFork();
  parents->watcher.AbandonAfterFork();
  parents->switches.Silence();  // the parent's queues may still be looked at
}

Runtime* Make(Runtime* inherited) {
  auto* fresh = new Runtime(Config::FromEnvironment());
  fresh->inherited = inherited;
  Runtime* expected = inherited;
  if (g_runtime.compare_exchange_strong(expected, fresh)) {
    if (!g_fork_handler.exchange(true)) pthread_atfork(nullptr, nullptr, &AfterForkInChild);
    return fresh;
  }
  delete fresh;
  return expected;
}

}  // namespace

Runtime::Runtime(Config c)
    : pid(getpid()),
      config(std::move(c)),
      gaps(config),
      batches(config.queue_bytes),
      client(config, &LoadedThroughText),
      reporter(client, gaps, loads, batches),
      drainer(reporter),
      queues(switches),
      beside(*this),
      live_client(config, &LoadedThroughText),
      watcher(*this) {
  live_client.BorrowSessionsOf(client);
  if (config.live) client.set_follows([] { return Live().complete(); });
}

Runtime* Runtime::Existing() noexcept {
  Runtime* runtime = g_runtime.load();
  return runtime && runtime->pid == getpid() ? runtime : nullptr;
}

Runtime* Runtime::Current() noexcept {
  Runtime* runtime = g_runtime.load();
  if (runtime && runtime->pid == getpid()) return runtime;
  if (DisabledByEnvironment()) return nullptr;
  try {
    return Make(runtime);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void NoteLoadedThrough(LoadedThrough how) { g_loaded_through |= static_cast<uint32_t>(how); }

std::string LoadedThroughText() {
  static constexpr const char* kTexts[] = {"", "LD_PRELOAD", "HSA_TOOLS_LIB",
                                           "LD_PRELOAD,HSA_TOOLS_LIB"};
  return kTexts[g_loaded_through.load() & 3];
}

void FinishAtExit() noexcept {
  Runtime* runtime = Runtime::Existing();
  if (!runtime) return;
  try {
    runtime->watcher.Stop(Deadline::After(kWatcherPatienceNs));
    runtime->client.ReleaseReserve();
    // Even with an exhausted budget the thread gets a moment to notice.
    const int64_t patience = std::max(runtime->client.budget_ns(), 50 * kNsPerMs);
    const Deadline deadline = Deadline::After(patience);
    if (!runtime->drainer.Stop(deadline) || !runtime->reporter.Stop(deadline)) return;
    std::vector<LoadCounters> finals;
    for (auto& load : runtime->loads.TakeAll()) {
      if (load->counters.StillMapped()) {
        if (load->ring) load->ring->Finish(/*last=*/true);
        finals.push_back(Snapshot(load.get(), /*final=*/true));
      }
      (void)load.release();  // the GPU may still be running on it
    }
    if (!finals.empty() || !runtime->batches.empty() || runtime->gaps.HasPending()) {
      runtime->client.TryNow();
    }
    runtime->reporter.Deliver(std::move(finals), runtime->config.deadline_ns, /*charge=*/true);
    runtime->client.CloseSession(runtime->config.deadline_ns / 4);
  } catch (const std::exception&) {  // std::bad_alloc at exit: nothing left to do
  }
}

}  // namespace rjdbi::agent
