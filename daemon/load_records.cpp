// An agent is not trusted: whatever it says of its records, the sums here stay sums of
// numbers that it said, and none wraps around.
#include "daemon/load_records.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "contract/decisions.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::daemon {
namespace {

uint64_t Sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
uint64_t Less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// "#3" is the fourth attachment of the question.
size_t IndexOf(const std::string& canonical) {
  size_t index = 0;
  return canonical.size() > 1 && absl::SimpleAtoi(canonical.substr(1), &index) ? index : SIZE_MAX;
}

}  // namespace

std::shared_ptr<LoadRecords> LoadRecords::Make(std::shared_ptr<const Decision> decision,
                                               std::shared_ptr<const Question> question) {
  if (decision == nullptr || question == nullptr || decision->record.ring_half_bytes() == 0) {
    return nullptr;
  }
  auto records = std::make_shared<LoadRecords>();
  for (const contract::DecisionGroup& group : contract::DecisionGroups(decision->record)) {
    const size_t attachment = IndexOf(group.attachment_id());
    if (attachment >= question->ids.size()) continue;
    for (size_t i = 0; i < group.size(); ++i) {
      if (group.has_record_layout(i)) records->AddSite(group.At(i), attachment);
    }
  }
  if (records->sites_.empty()) return nullptr;
  records->totals_.resize(records->sites_.size());
  for (const Site& site : records->sites_) {
    const v1::RecordLayout* layout = site.decision ? &site.decision->record_layout() : nullptr;
    records->shapes_.push_back(layout ? Shape{layout->bytes(), layout->kind()} : Shape());
  }
  records->question_ = std::move(question);
  return records;
}

void LoadRecords::AddSite(v1::Decision made, size_t attachment) {
  const uint32_t number = made.record_layout().site();
  if (number >= RJDBI_RECORD_MOST_SITES) return;
  if (number >= sites_.size()) sites_.resize(size_t{number} + 1);
  // A record that several decisions share is the one's that carries the probe.
  Site& site = sites_[number];
  if (site.decision != nullptr && !site.decision->has_counted_at()) return;
  site = {std::make_shared<const v1::Decision>(std::move(made)), attachment};
}

LoadRecords::Parsed LoadRecords::Parse(const std::string& bytes) const {
  Parsed parsed;
  parsed.records.reserve(bytes.size() / (2 * RJDBI_RECORD_ALIGNMENT));
  size_t at = 0;
  while (bytes.size() - at >= sizeof(rjdbi_record_header)) {
    rjdbi_record_header header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    const uint32_t size = RJDBI_RECORD_BYTES(header.descriptor);
    if (size == 0 || size > bytes.size() - at) break;
    const uint32_t number = RJDBI_RECORD_SITE(header.descriptor);
    const Shape shape = number < shapes_.size() ? shapes_[number] : Shape();
    if (shape.bytes == size && shape.kind == RJDBI_RECORD_KIND(header.descriptor)) {
      parsed.records.push_back({static_cast<uint32_t>(at), size, number});
    } else {
      ++parsed.rejected;
    }
    at += size;
  }
  if (at < bytes.size()) ++parsed.rejected;
  return parsed;
}

bool LoadRecords::IsNew(const v1::RecordBatch& batch) const {
  const std::lock_guard lock(mutex_);
  return batch.sequence() > sequence_;
}

void LoadRecords::Note(const v1::RecordBatch& batch, const Parsed& parsed, size_t kept) {
  // What the agent counted and we do not find is rejected, too.
  const uint64_t found = parsed.records.size();
  const uint64_t rejected = std::max(parsed.rejected, Less(batch.count(), found));
  const std::lock_guard lock(mutex_);
  sequence_ = batch.sequence();
  written_ = std::max<uint64_t>(written_, batch.written());
  agent_queue_ = std::max<uint64_t>(agent_queue_, batch.lost_agent_queue());
  unfinished_bytes_ = std::max<uint64_t>(unfinished_bytes_, batch.unfinished_bytes());
  received_ = Sum(received_, Sum(found, rejected));
  rejected_ = Sum(rejected_, rejected);
  for (size_t i = 0; i < parsed.records.size(); ++i) {
    Totals& totals = totals_[parsed.records[i].site];
    ++totals.received;
    ++(i < kept ? totals.stored : totals.rate_limited);
  }
  // What was written up to here and has not come was in batches that will not.
  undelivered_ = Less(Less(batch.written(), batch.lost_agent_queue()), received_);
}

void LoadRecords::NoteDropped(const RecordsBySite& records) {
  const std::lock_guard lock(mutex_);
  for (const auto& [site, count] : records) {
    totals_[site].stored -= count;
    totals_[site].dropped += count;
  }
}

void LoadRecords::NoteTotals(const v1::LoadCounters& totals, bool final) {
  const std::lock_guard lock(mutex_);
  uint64_t written = 0;
  for (int i = 0; i < totals.site_records_size(); ++i) {
    const uint64_t read = totals.site_records(i);
    written = Sum(written, read);
    const auto site = static_cast<size_t>(i);
    if (site < totals_.size()) totals_[site].read = std::max(totals_[site].read, read);
  }
  written_ = std::max(written_, written);
  agent_queue_ = std::max<uint64_t>(agent_queue_, totals.lost_agent_queue());
  unfinished_bytes_ = std::max<uint64_t>(unfinished_bytes_, totals.unfinished_bytes());
  final_ = final_ || final;
}

v1::RecordCounts LoadRecords::Counts(uint32_t site, uint64_t device_full) const {
  v1::RecordCounts counts;
  counts.set_device_full(device_full);
  const std::lock_guard lock(mutex_);
  if (site >= totals_.size()) return counts;
  const Totals& totals = totals_[site];
  // Batches may be ahead of the agent's reports.
  counts.set_read(std::max(totals.read, totals.received));
  counts.set_received(totals.received);
  counts.set_rate_limited(totals.rate_limited);
  counts.set_dropped(totals.dropped);
  counts.set_stored(totals.stored);
  return counts;
}

v1::RecordLosses LoadRecords::Losses() const {
  v1::RecordLosses losses;
  const std::lock_guard lock(mutex_);
  losses.set_written(std::max(written_, received_));
  losses.set_agent_queue(agent_queue_);
  losses.set_received(received_);
  losses.set_rejected(rejected_);
  losses.set_unfinished_bytes(unfinished_bytes_);
  const uint64_t missing = Less(Less(losses.written(), agent_queue_), received_);
  losses.set_undelivered(final_ ? missing : std::min(undelivered_, missing));
  losses.set_on_the_way(missing - losses.undelivered());
  for (const std::string& id : question_->ids) losses.add_attachment_ids(id);
  return losses;
}

}  // namespace rjdbi::daemon
