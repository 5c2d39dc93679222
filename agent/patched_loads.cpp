// Bookkeeping by executable; see patched_loads.h.
#include "agent/patched_loads.h"

#include <iterator>
#include <utility>

namespace rjdbi::agent {

LoadCounters Snapshot(PatchedLoad* load, bool final) {
  LoadCounters report;
  report.load_id = load->load_id;
  report.counters = load->counters.Read();
  report.sequence = ++load->sequence;
  report.final = final;
  if (load->ring) report.records = load->ring->Totals();
  load->reported = report.counters;
  load->reported_records = report.records.written;
  load->ever_reported = true;
  return report;
}

LoadCounters LastReported(PatchedLoad* load) {
  LoadCounters report;
  report.load_id = load->load_id;
  report.counters = load->reported;
  report.sequence = ++load->sequence;
  report.final = true;
  if (load->ring) report.records = load->ring->Totals();
  return report;
}

namespace {

bool Changed(const PatchedLoad& load) {
  return !load.ever_reported || load.counters.Read() != load.reported ||
         (load.ring && load.ring->written() != load.reported_records);
}

}  // namespace

void PatchedLoads::Add(uint64_t executable, std::unique_ptr<PatchedLoad>& load) {
  std::lock_guard lock(mutex_);
  PatchedLoadList& list = loads_[executable];
  list.reserve(list.size() + 1);
  list.push_back(std::move(load));
}

PatchedLoadList PatchedLoads::Take(uint64_t executable) {
  std::lock_guard lock(mutex_);
  auto found = loads_.find(executable);
  if (found == loads_.end()) return {};
  PatchedLoadList list = std::move(found->second);
  loads_.erase(found);
  return list;
}

void PatchedLoads::PutBack(uint64_t executable, PatchedLoadList loads) {
  std::lock_guard lock(mutex_);
  PatchedLoadList& list = loads_[executable];
  list.insert(list.end(), std::make_move_iterator(loads.begin()),
              std::make_move_iterator(loads.end()));
}

PatchedLoadList PatchedLoads::TakeAll() {
  std::lock_guard lock(mutex_);
  PatchedLoadList all;
  for (auto& [executable, list] : loads_) {
    all.insert(all.end(), std::make_move_iterator(list.begin()),
               std::make_move_iterator(list.end()));
  }
  loads_.clear();
  return all;
}

std::vector<LoadCounters> PatchedLoads::SnapshotChanged() {
  std::lock_guard lock(mutex_);
  std::vector<LoadCounters> reports;
  if (hold_reads_) return reports;
  for (auto& [executable, list] : loads_) {
    for (auto& load : list) {
      if (!Changed(*load)) continue;
      reports.push_back(Snapshot(load.get(), /*final=*/false));
    }
  }
  return reports;
}

void PatchedLoads::ForgetReported() {
  std::lock_guard lock(mutex_);
  for (auto& [executable, list] : loads_) {
    for (auto& load : list) load->ever_reported = false;
  }
}

void PatchedLoads::HoldReads(bool hold) {
  std::lock_guard lock(mutex_);
  hold_reads_ = hold;
  for (auto& [executable, list] : loads_) {
    for (auto& load : list) {
      if (load->ring) load->ring->Hold(hold);
    }
  }
}

void PatchedLoads::DrainRings() {
  std::lock_guard lock(mutex_);
  for (auto& [executable, list] : loads_) {
    for (auto& load : list) {
      if (load->ring) load->ring->Finish(/*last=*/false);
    }
  }
}

bool PatchedLoads::empty() {
  std::lock_guard lock(mutex_);
  return loads_.empty();
}

}  // namespace rjdbi::agent
