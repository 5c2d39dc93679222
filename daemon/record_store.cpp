#include "daemon/record_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "contract/demangle.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::daemon {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
// So that a little is dropped at a time.
constexpr size_t kMostChunkBytes = size_t{16} << 10;
// Of a chunk beside its records: itself, its places in maps, its row on disk.
constexpr size_t kChunkOverhead = 512;
constexpr uint64_t kMostReplyBytes = uint64_t{8} << 20;

uint32_t RecordBytes(const std::string& bytes, size_t at) {
  rjdbi_record_header header;
  std::memcpy(&header, bytes.data() + at, sizeof header);
  return RJDBI_RECORD_BYTES(header.descriptor);
}

// Whole records, each of the site that the list says.
bool IsWhole(const RecordLog::Chunk& chunk, const RecordOrigin& origin) {
  size_t at = 0;
  for (const uint32_t site : chunk.sites) {
    if (chunk.bytes->size() - at < sizeof(rjdbi_record_header) || site >= origin.sources.size()) {
      return false;
    }
    const uint32_t bytes = RecordBytes(*chunk.bytes, at);
    if (bytes == 0 || bytes > chunk.bytes->size() - at) return false;
    at += bytes;
  }
  return at == chunk.bytes->size();
}

RecordsBySite CountBySite(const std::vector<uint32_t>& sites) {
  std::map<uint32_t, uint64_t> counts;
  for (const uint32_t site : sites) ++counts[site];
  return {counts.begin(), counts.end()};
}

}  // namespace

uint64_t RateLimit::Take(uint64_t bytes, uint64_t per_second, int64_t now_unix_ns) {
  if (per_second == 0) return bytes;
  if (!started_) {
    level_ = per_second;
  } else if (now_unix_ns > filled_ns_) {  // the wall clock may be set back
    const auto elapsed =
        std::min<uint64_t>(static_cast<uint64_t>(now_unix_ns - filled_ns_), kNsPerSecond);
    const auto gained =
        static_cast<uint64_t>(static_cast<double>(per_second) * static_cast<double>(elapsed) /
                              static_cast<double>(kNsPerSecond));
    level_ = std::min(per_second, level_ + gained);
  }
  started_ = true;
  filled_ns_ = now_unix_ns;
  const uint64_t taken = std::min(bytes, level_);
  level_ -= taken;
  return taken;
}

size_t RecordStore::Chunk::cost() const {
  return kChunkOverhead + bytes->size() + sites.size() * sizeof(uint32_t);
}

void RecordStore::set_limits(const RecordLimits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

void RecordStore::Drop(uint64_t number) {
  const auto found = chunks_.find(number);
  const Chunk& chunk = found->second;
  OfAttachment& of = attachments_[chunk.attachment];
  of.bytes -= chunk.cost();
  of.numbers.erase(number);
  stats_.bytes -= chunk.cost();
  stats_.records -= chunk.sites.size();
  if (of.numbers.empty()) attachments_.erase(chunk.attachment);
  if (chunk.origin->records) chunk.origin->records->NoteDropped(CountBySite(chunk.sites));
  log_.Erase(number);
  const auto origin = origins_.find(chunk.origin);
  if (--origin->second.chunks == 0) {
    log_.EraseOrigin(origin->second.id);
    origins_.erase(origin);
  }
  chunks_.erase(found);
}

void RecordStore::MakeRoom(const std::string& attachment) {
  const auto over = [&] {
    const auto found = attachments_.find(attachment);
    return found != attachments_.end() && found->second.bytes > limits_.bytes_per_attachment;
  };
  while (over()) Drop(*attachments_[attachment].numbers.begin());
  while (stats_.bytes > limits_.bytes) Drop(chunks_.begin()->first);
}

void RecordStore::Keep(uint64_t number, Chunk chunk) {
  OfAttachment& of = attachments_[chunk.attachment];
  of.numbers.insert(number);
  of.bytes += chunk.cost();
  stats_.bytes += chunk.cost();
  stats_.records += chunk.sites.size();
  ++origins_[chunk.origin].chunks;
  const std::string attachment = chunk.attachment;
  chunks_.emplace(number, std::move(chunk));
  MakeRoom(attachment);
}

void RecordStore::Insert(Chunk chunk) {
  const uint64_t number = next_number_++;
  OfOrigin& origin = origins_[chunk.origin];
  if (origin.id == 0) {
    origin.id = next_origin_++;
    v1::GetRecordsReply sources;
    sources.mutable_sources()->Add(chunk.origin->sources.begin(), chunk.origin->sources.end());
    log_.PutOrigin(origin.id, sources.SerializeAsString());
  }
  log_.Put({number, origin.id, chunk.attachment, chunk.received_unix_ns, chunk.bytes, chunk.sites});
  Keep(number, std::move(chunk));
}

RecordStore::RecordStore(const RecordLimits& limits, const std::string& file)
    : limits_(limits), log_(file) {
  const std::lock_guard lock(mutex_);
  Restore();
}

// What is on disk was ours, but may have been changed since: it is checked.
void RecordStore::Restore() {
  std::map<uint64_t, OriginPtr> origins;
  log_.Load(
      [&](uint64_t id, const std::string& bytes) {
        v1::GetRecordsReply reply;
        next_origin_ = std::max(next_origin_, id + 1);
        if (!reply.ParseFromString(bytes)) return;
        auto origin = std::make_shared<RecordOrigin>();
        origin->sources.assign(reply.sources().begin(), reply.sources().end());
        for (const v1::RecordSource& source : origin->sources) {
          if (!source.session_id().empty()) origin->session_id = source.session_id();
        }
        origins_[origin].id = id;
        origins[id] = std::move(origin);
      },
      [&](RecordLog::Chunk stored) {
        next_number_ = std::max(next_number_, stored.number + 1);
        const auto origin = origins.find(stored.origin);
        if (origin == origins.end() || !IsWhole(stored, *origin->second)) {
          return log_.Erase(stored.number);
        }
        Keep(stored.number, {origin->second, std::move(stored.attachment), stored.received_unix_ns,
                             std::move(stored.bytes), std::move(stored.sites)});
      });
  for (auto it = origins_.begin(); it != origins_.end();) {
    if (it->second.chunks == 0) log_.EraseOrigin(it->second.id);
    it = it->second.chunks == 0 ? origins_.erase(it) : std::next(it);
  }
}

bool RecordStore::KnowsAttachment(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return attachments_.count(id) != 0;
}

bool RecordStore::KnowsSession(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(origins_.begin(), origins_.end(), [&](const auto& origin) {
    return absl::StartsWith(origin.first->session_id, prefix);
  });
}

void RecordStore::Add(const OriginPtr& origin, const v1::RecordBatch& batch, int64_t now_unix_ns) {
  LoadRecords& records = *origin->records;
  const LoadRecords::Parsed parsed = records.Parse(batch.records());
  uint64_t bytes = 0;
  for (const auto& record : parsed.records) bytes += record.bytes;

  const std::lock_guard lock(mutex_);
  if (!records.IsNew(batch)) return;
  uint64_t allowed = origin->rate->Take(bytes, limits_.bytes_per_second, now_unix_ns);
  struct Piece {
    std::string attachment, bytes;
    std::vector<uint32_t> sites;
  };
  std::vector<Piece> pieces;
  std::vector<size_t> filling(records.question().ids.size(), SIZE_MAX);  // by attachment
  size_t kept = 0;
  for (; kept < parsed.records.size(); ++kept) {
    const auto& record = parsed.records[kept];
    if (record.bytes > allowed) break;
    allowed -= record.bytes;
    size_t& at = filling[records.sites()[record.site].attachment];
    if (at == SIZE_MAX || pieces[at].bytes.size() + record.bytes > kMostChunkBytes) {
      at = pieces.size();
      pieces.push_back({origin->sources[record.site].attachment_id(), {}, {}});
    }
    Piece& piece = pieces[at];
    piece.bytes.append(batch.records(), record.offset, record.bytes);
    piece.sites.push_back(record.site);
  }
  records.Note(batch, parsed, kept);
  for (Piece& piece : pieces) {
    Insert({origin, std::move(piece.attachment), now_unix_ns,
            std::make_shared<const std::string>(std::move(piece.bytes)), std::move(piece.sites)});
  }
}

void RecordStore::Forget(const LoadRecords& records) {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  for (const auto& [number, chunk] : chunks_) {
    if (chunk.origin->records.get() == &records) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) Drop(number);
}

RecordStore::Stats RecordStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// Which records a request is about, and where the reply names their sources.
class RecordStore::Selection {
 public:
  Selection(const v1::GetRecordsRequest& request,
            const std::function<bool(const std::string&)>& wants, v1::GetRecordsReply& reply)
      : request_(request), wants_(wants), reply_(reply) {}

  bool Wants(const Chunk& chunk) {
    const auto [found, fresh] = attachments_.try_emplace(chunk.attachment, false);
    if (fresh) found->second = wants_(chunk.attachment);
    return found->second && absl::StartsWith(chunk.origin->session_id, request_.session_id());
  }
  bool Wants(const Chunk& chunk, uint32_t site) {
    if (request_.kernel_glob().empty()) return true;
    std::vector<int8_t>& known = kernels_[chunk.origin.get()];
    known.resize(chunk.origin->sources.size(), -1);
    if (known[site] < 0) {
      known[site] = contract::KernelMatches(request_.kernel_glob(),
                                            chunk.origin->sources[site].location().kernel());
    }
    return known[site] != 0;
  }
  uint64_t Count(const Chunk& chunk) {
    if (!Wants(chunk)) return 0;
    return static_cast<uint64_t>(std::count_if(chunk.sites.begin(), chunk.sites.end(),
                                               [&](uint32_t site) { return Wants(chunk, site); }));
  }
  // The chunk's wanted records but the first `skip`. Bytes that were added.
  uint64_t Copy(const Chunk& chunk, uint64_t skip) {
    v1::RecordChunk& out = *reply_.add_chunks();
    out.set_received_unix_ns(chunk.received_unix_ns);
    size_t at = 0;
    for (const uint32_t site : chunk.sites) {
      const uint32_t bytes = RecordBytes(*chunk.bytes, at);
      if (Wants(chunk, site) && (skip == 0 || skip-- == 0)) {
        out.mutable_records()->append(*chunk.bytes, at, bytes);
        out.add_sources(Source(chunk, site));
      }
      at += bytes;
    }
    reply_.set_records(reply_.records() + static_cast<uint64_t>(out.sources_size()));
    return out.records().size();
  }

 private:
  uint32_t Source(const Chunk& chunk, uint32_t site) {
    std::vector<uint32_t>& known = sources_[chunk.origin.get()];
    known.resize(chunk.origin->sources.size(), UINT32_MAX);
    if (known[site] == UINT32_MAX) {
      known[site] = static_cast<uint32_t>(reply_.sources_size());
      *reply_.add_sources() = chunk.origin->sources[site];
    }
    return known[site];
  }

  const v1::GetRecordsRequest& request_;
  const std::function<bool(const std::string&)>& wants_;
  v1::GetRecordsReply& reply_;
  std::map<std::string, bool> attachments_;
  std::map<const RecordOrigin*, std::vector<int8_t>> kernels_;    // -1: not known yet
  std::map<const RecordOrigin*, std::vector<uint32_t>> sources_;  // index in the reply
};

void RecordStore::Get(const v1::GetRecordsRequest& request,
                      const std::function<bool(const std::string&)>& wants,
                      v1::GetRecordsReply& reply) const {
  const uint64_t most = request.most_bytes() == 0
                            ? kMostReplyBytes
                            : std::min<uint64_t>(request.most_bytes(), kMostReplyBytes);
  const std::lock_guard lock(mutex_);
  Selection selection(request, wants, reply);
  auto from = chunks_.upper_bound(request.after());
  uint64_t skip = 0;
  if (request.last() > 0) {  // back from the newest
    uint64_t found = 0;
    auto at = chunks_.end();
    while (at != from && found < request.last()) found += selection.Count((--at)->second);
    from = at;
    skip = found > request.last() ? found - request.last() : 0;
  }
  reply.set_next(std::max(request.after(), next_number_ - 1));
  uint64_t bytes = 0;
  for (; from != chunks_.end(); ++from, skip = 0) {
    if (selection.Count(from->second) == 0) continue;
    if (bytes >= most) {
      reply.set_more(true);
      reply.set_next(from->first - 1);
      break;
    }
    bytes += selection.Copy(from->second, skip);
  }
}

}  // namespace rjdbi::daemon
