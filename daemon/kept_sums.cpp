#include "daemon/kept_sums.h"

#include <algorithm>

namespace rjdbi::daemon {
namespace {

constexpr size_t kMaxRefusedObjects = 1024;  // of one attachment

}  // namespace

void KeptSums::AddProcess(uint64_t gaps) {
  ++processes_;
  gaps_ += gaps;
}

KeptSums::OfAttachment& KeptSums::Of(const std::string& id) {
  if (attachments_.size() >= max_attachments_ && attachments_.count(id) == 0) {
    const auto oldest = std::min_element(
        attachments_.begin(), attachments_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    places_ -= oldest->second.counts.size() + oldest->second.coverage.size();
    attachments_.erase(oldest);
  }
  OfAttachment& of = attachments_[id];
  of.used = ++clock_;
  return of;
}

void AddRecords(v1::RecordCounts& sum, const v1::RecordCounts& more) {
  sum.set_device_full(sum.device_full() + more.device_full());
  sum.set_read(sum.read() + more.read());
  sum.set_received(sum.received() + more.received());
  sum.set_rate_limited(sum.rate_limited() + more.rate_limited());
  sum.set_dropped(sum.dropped() + more.dropped());
  sum.set_stored(sum.stored() + more.stored());
}

void AddLosses(v1::RecordLosses& sum, const v1::RecordLosses& more) {
  sum.set_written(sum.written() + more.written());
  sum.set_received(sum.received() + more.received());
  sum.set_agent_queue(sum.agent_queue() + more.agent_queue());
  sum.set_undelivered(sum.undelivered() + more.undelivered());
  sum.set_on_the_way(sum.on_the_way() + more.on_the_way());
  sum.set_rejected(sum.rejected() + more.rejected());
  sum.set_unfinished_bytes(sum.unfinished_bytes() + more.unfinished_bytes());
}

void KeptSums::AddCount(v1::SiteCount count) {
  OfAttachment& of = Of(count.attachment_id());
  auto place = std::tuple(count.code_object_sha256(), count.location().kernel(),
                          count.location().kernel_offset());
  if (places_ >= max_places_ && of.counts.count(place) == 0) {
    place = {};
    count.clear_code_object_sha256();
    count.clear_location();
  }
  count.clear_session_id();
  count.clear_load_id();
  const auto [found, fresh] = of.counts.try_emplace(place, count);
  if (fresh) {
    ++places_;
    return;
  }
  found->second.set_count(found->second.count() + count.count());
  if (count.has_records()) AddRecords(*found->second.mutable_records(), count.records());
  for (int word = 0; word < count.words_size(); ++word) {
    if (word >= found->second.words_size()) found->second.add_words(0);
    found->second.set_words(word, found->second.words(word) + count.words(word));
  }
  found->second.set_final(found->second.final() && count.final());
}

// As with listed processes, a kernel counts once, and a load that is in place wins.
void KeptSums::AddCoverage(const LoadRecord& load, v1::Coverage coverage) {
  OfAttachment& of = Of(coverage.attachment_id());
  const auto key = std::pair(load.sha256, coverage.kernel());
  const auto found = of.coverage.find(key);
  if (found == of.coverage.end()) {
    if (places_ >= max_places_) return;
    ++places_;
  } else if (found->second.in_place) {
    return;
  }
  of.coverage[key] = {std::move(coverage), load.in_place()};
}

void KeptSums::Add(const LoadRecord& load) {
  if (load.decision == nullptr) return;
  for (v1::SiteCount& count : CountsOf(load)) AddCount(std::move(count));
  for (const v1::Coverage& part : load.decision->record.coverage()) {
    AddCoverage(load, CoverageOf(load, part));
  }
  if (load.records != nullptr) {
    const v1::RecordLosses losses = load.records->Losses();
    AddLosses(record_losses_, losses);
    for (const std::string& id : losses.attachment_ids()) record_attachments_.insert(id);
  }
  if (load.decision->record.object_violations().empty() || load.question == nullptr) return;
  for (const std::string& id : load.question->ids) {
    std::set<std::string>& objects = Of(id).refused_objects;
    if (objects.size() < kMaxRefusedObjects) objects.insert(load.sha256);
  }
}

v1::RecordLosses KeptSums::record_losses() const {
  v1::RecordLosses losses = record_losses_;
  for (const std::string& id : record_attachments_) losses.add_attachment_ids(id);
  return losses;
}

}  // namespace rjdbi::daemon
