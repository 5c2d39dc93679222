// nanopb callbacks between admission.proto and the agent's own types. Callbacks
// are C frames' guests: none lets an exception out.
#include "agent/daemon_client/messages.h"

#include <pb_decode.h>
#include <pb_encode.h>

#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "proto/rjdbi/telemetry_ring.h"
#include "rjdbi/v1/admission.pb.h"

namespace rjdbi::agent {
namespace {

// ---- Encoding ----

// proto3 strings must be UTF-8; paths and arguments need not be.
std::string Utf8(const std::string& text) {
  std::string out = text;
  for (size_t i = 0; i < out.size();) {
    auto lead = static_cast<unsigned char>(out[i]);
    size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4) length = 0;
    bool good = length > 0 && i + length <= out.size();
    for (size_t k = 1; good && k < length; ++k) {
      good = (static_cast<unsigned char>(out[i + k]) & 0xc0) == 0x80;
    }
    if (good && length > 2) {  // overlong forms, surrogates and values past U+10FFFF
      auto second = static_cast<unsigned char>(out[i + 1]);
      good = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second >= 0xa0) &&
             !(lead == 0xf0 && second < 0x90) && !(lead == 0xf4 && second >= 0x90);
    }
    if (good) {
      i += length;
    } else {
      out[i++] = '?';
    }
  }
  return out;
}

bool Append(pb_ostream_t* stream, const pb_byte_t* bytes, size_t count) {
  try {
    auto* out = static_cast<WireBytes*>(stream->state);
    out->insert(out->end(), bytes, bytes + count);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// The only cause of a failed encode is memory.
WireBytes Encode(const pb_msgdesc_t* fields, const void* message) {
  WireBytes out;
  pb_ostream_t stream{&Append, &out, SIZE_MAX, 0, nullptr};
  if (!pb_encode(&stream, fields, message)) throw std::bad_alloc();
  return out;
}

bool EncodeView(pb_ostream_t* stream, const pb_field_t* field, void* const* arg) {
  const auto* view = static_cast<const ByteView*>(*arg);
  if (view->size == 0) return true;
  return pb_encode_tag_for_field(stream, field) && pb_encode_string(stream, view->data, view->size);
}

ByteView View(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
ByteView View(const WireBytes& bytes) { return {bytes.data(), bytes.size()}; }
ByteView View(const Sha256Digest& digest) { return {digest.data(), digest.size()}; }

pb_callback_t Encoder(ByteView* view) {
  pb_callback_t callback{};
  callback.funcs.encode = &EncodeView;
  callback.arg = view;
  return callback;
}

template <typename T>
pb_callback_t Encoder(bool (*function)(pb_ostream_t*, const pb_field_t*, void* const*),
                      const T* source) {
  pb_callback_t callback{};
  callback.funcs.encode = function;
  callback.arg = const_cast<T*>(source);
  return callback;
}

// Packed little-endian words: the host's own layout on every platform that has
// an AMD GPU.
bool EncodeCounters(pb_ostream_t* stream, const pb_field_t* field, void* const* arg) {
  const auto* counters = static_cast<const std::vector<uint64_t>*>(*arg);
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  if (counters->empty()) return true;
  return pb_encode_tag(stream, PB_WT_STRING, field->tag) &&
         pb_encode_string(stream, reinterpret_cast<const pb_byte_t*>(counters->data()),
                          counters->size() * sizeof(uint64_t));
}

bool EncodeLoads(pb_ostream_t* stream, const pb_field_t* field, void* const* arg) {
  for (const LoadCounters& load : *static_cast<const std::vector<LoadCounters>*>(*arg)) {
    rjdbi_v1_LoadCounters message = rjdbi_v1_LoadCounters_init_zero;
    message.load_id = load.load_id;
    message.sequence = load.sequence;
    message.counters = Encoder(&EncodeCounters, &load.counters);
    message.final = load.final;
    message.site_records = Encoder(&EncodeCounters, &load.records.site_records);
    message.lost_agent_queue = load.records.lost_agent_queue;
    message.unfinished_bytes = load.records.unfinished_bytes;
    if (!pb_encode_tag_for_field(stream, field) ||
        !pb_encode_submessage(stream, rjdbi_v1_LoadCounters_fields, &message)) {
      return false;
    }
  }
  return true;
}

bool EncodeBatchList(pb_ostream_t* stream, const pb_field_t* field, void* const* arg) {
  for (const RecordBatch& batch : *static_cast<const std::vector<RecordBatch>*>(*arg)) {
    ByteView records = View(batch.records);
    rjdbi_v1_RecordBatch message = rjdbi_v1_RecordBatch_init_zero;
    message.load_id = batch.load_id;
    message.sequence = batch.sequence;
    message.records = Encoder(&records);
    message.written = batch.written;
    message.lost_agent_queue = batch.lost_agent_queue;
    message.unfinished_bytes = batch.unfinished_bytes;
    message.count = batch.count;
    if (!pb_encode_tag_for_field(stream, field) ||
        !pb_encode_submessage(stream, rjdbi_v1_RecordBatch_fields, &message)) {
      return false;
    }
  }
  return true;
}

bool EncodeGaps(pb_ostream_t* stream, const pb_field_t* field, void* const* arg) {
  for (const Gap& gap : *static_cast<const std::vector<Gap>*>(*arg)) {
    ByteView digest = gap.has_digest ? View(gap.digest) : ByteView{};
    const std::string origin_text = Utf8(gap.origin);
    const std::string detail_text = Utf8(gap.detail);  // may hold what the other side said
    ByteView origin = View(origin_text);
    ByteView detail = View(detail_text);
    rjdbi_v1_Gap message = rjdbi_v1_Gap_init_zero;
    message.kind = static_cast<rjdbi_v1_GapKind>(gap.kind);
    message.sha256 = Encoder(&digest);
    message.size = gap.size;
    message.origin = Encoder(&origin);
    message.detail = Encoder(&detail);
    message.unix_ns = gap.unix_ns;
    message.load_id = gap.load_id;
    if (!pb_encode_tag_for_field(stream, field) ||
        !pb_encode_submessage(stream, rjdbi_v1_Gap_fields, &message)) {
      return false;
    }
  }
  return true;
}

// ---- Decoding ----

struct StringTarget {
  std::string* text;
  size_t limit;
};

bool DecodeString(pb_istream_t* stream, const pb_field_t*, void** arg) {
  auto* target = static_cast<StringTarget*>(*arg);
  if (stream->bytes_left > target->limit) PB_RETURN_ERROR(stream, "summary too long");
  try {
    target->text->resize(stream->bytes_left);
  } catch (const std::exception&) {
    PB_RETURN_ERROR(stream, "out of memory");
  }
  return pb_read(stream, reinterpret_cast<pb_byte_t*>(target->text->data()), stream->bytes_left);
}

// nanopb stores whatever number the peer sent in a C enum, which C++ may not even
// load when it names no enumerator.
template <typename To, typename From>
To FromWire(const From& wire) {
  std::underlying_type_t<From> number;
  std::memcpy(&number, &wire, sizeof number);
  return static_cast<To>(number);
}

struct FixupTarget {
  std::vector<Fixup>* fixups;
  size_t limit;
};

bool DecodeFixup(pb_istream_t* stream, const pb_field_t*, void** arg) {
  auto* target = static_cast<FixupTarget*>(*arg);
  if (target->fixups->size() >= target->limit) PB_RETURN_ERROR(stream, "too many fixups");
  rjdbi_v1_Fixup fixup = rjdbi_v1_Fixup_init_zero;
  if (!pb_decode(stream, rjdbi_v1_Fixup_fields, &fixup)) return false;
  try {
    target->fixups->push_back({fixup.file_offset, FromWire<FixupKind>(fixup.kind), fixup.addend});
  } catch (const std::exception&) {
    PB_RETURN_ERROR(stream, "out of memory");
  }
  return true;
}

// Reads one item of a repeated message field into `items`.
template <typename T>
struct ListTarget {
  std::vector<T>* items;
  size_t limit;
};

template <typename T>
bool Keep(pb_istream_t* stream, ListTarget<T>* target, const T& item) {
  try {
    target->items->push_back(item);
  } catch (const std::exception&) {
    PB_RETURN_ERROR(stream, "out of memory");
  }
  return true;
}

bool DecodeSwitch(pb_istream_t* stream, const pb_field_t*, void** arg) {
  auto* target = static_cast<ListTarget<KernelSwitch>*>(*arg);
  if (target->items->size() >= target->limit) PB_RETURN_ERROR(stream, "too many kernel switches");
  // The name is for readers of the wire: dispatches know addresses.
  rjdbi_v1_KernelSwitch item = rjdbi_v1_KernelSwitch_init_zero;
  if (!pb_decode(stream, rjdbi_v1_KernelSwitch_fields, &item)) return false;
  return Keep(stream, target,
              KernelSwitch{item.original_descriptor, item.beside_descriptor,
                           item.private_segment_bytes, item.group_segment_bytes});
}

bool DecodeRestore(pb_istream_t* stream, const pb_field_t*, void** arg) {
  auto* target = static_cast<ListTarget<KernelRestore>*>(*arg);
  if (target->items->size() >= target->limit) PB_RETURN_ERROR(stream, "too many kernel restores");
  rjdbi_v1_KernelRestore item = rjdbi_v1_KernelRestore_init_zero;
  if (!pb_decode(stream, rjdbi_v1_KernelRestore_fields, &item)) return false;
  KernelRestore restore;
  if (item.original.size != restore.original.size()) {
    PB_RETURN_ERROR(stream, "a kernel descriptor of another size");
  }
  restore.descriptor = item.patched_descriptor;
  restore.code = item.code;
  std::memcpy(restore.original.data(), item.original.bytes, restore.original.size());
  return Keep(stream, target, restore);
}

struct ChunkTarget {
  ChunkSink* sink;
  bool seen = false;
};

bool DecodeChunk(pb_istream_t* stream, const pb_field_t*, void** arg) {
  auto* target = static_cast<ChunkTarget*>(*arg);
  size_t size = stream->bytes_left;
  if (size > target->sink->room) PB_RETURN_ERROR(stream, "more chunk bytes than announced");
  target->seen = true;
  if (size == 0) return true;
  if (!pb_read(stream, target->sink->next, size)) return false;
  target->sink->next += size;
  target->sink->room -= size;
  return true;
}

template <typename T>
pb_callback_t Decoder(bool (*function)(pb_istream_t*, const pb_field_t*, void**), T* target) {
  pb_callback_t callback{};
  callback.funcs.decode = function;
  callback.arg = target;
  return callback;
}

bool Malformed(const pb_istream_t& stream, const char* what, std::string* why) {
  *why = std::string(what) + ": " + PB_GET_ERROR(&stream);
  return false;
}

bool FixupInRange(const Fixup& fixup, const Decision& decision, bool beside) {
  if (decision.patched_size < 4 || fixup.file_offset > decision.patched_size - 4) return false;
  switch (fixup.kind) {
    case FixupKind::kCounterAddressLo32:
    case FixupKind::kCounterAddressHi32:
      return fixup.addend < decision.buffer.bytes();
    case FixupKind::kOriginalAddressLo32:
    case FixupKind::kOriginalAddressHi32:
      return beside;
  }
  return false;
}

constexpr uint64_t kMostRingSlack = 4096;  // between counters and ring, bytes

// A ring behind the counters, or none.
bool RingInRange(const BufferLayout& buffer) {
  if (!buffer.has_ring()) return buffer.ring_offset == 0;
  const uint64_t counters = uint64_t{buffer.counter_count} * sizeof(uint64_t);
  const uint32_t half = buffer.ring_half_bytes;
  return half >= RJDBI_RING_LEAST_HALF_BYTES && half <= RJDBI_RING_MOST_HALF_BYTES &&
         (half & (half - 1)) == 0 && buffer.ring_sites <= RJDBI_RECORD_MOST_SITES &&
         buffer.ring_offset % RJDBI_RING_ALIGNMENT == 0 && buffer.ring_offset >= counters &&
         buffer.ring_offset - counters < kMostRingSlack;
}

// Everything about a decision that can be checked without the image.
bool CheckDecision(const Decision& decision, const DecodeLimits& limits, std::string* why) {
  if (!limits.beside && (!decision.switches.empty() || !decision.restores.empty())) {
    *why = "directed dispatches for an object that is not loaded yet";
    return false;
  }
  switch (decision.verdict) {
    case Verdict::kOriginalNotSelected:
    case Verdict::kOriginalRefused:
      return true;
    case Verdict::kPatched:
      break;
    default:
      *why = "unknown verdict " + std::to_string(static_cast<uint32_t>(decision.verdict));
      return false;
  }
  if (decision.patched_size == 0 || !decision.has_patched_digest) {
    *why = "patched image without size or hash";
    return false;
  }
  if (decision.buffer.counter_count > limits.max_counters) {
    *why = "too many counters: " + std::to_string(decision.buffer.counter_count);
    return false;
  }
  if (!RingInRange(decision.buffer)) {
    *why = "ring of trace records out of range: halves of " +
           std::to_string(decision.buffer.ring_half_bytes) + " bytes at " +
           std::to_string(decision.buffer.ring_offset);
    return false;
  }
  for (const Fixup& fixup : decision.fixups) {
    if (!FixupInRange(fixup, decision, limits.beside)) {
      *why = "fixup out of range at image offset " + std::to_string(fixup.file_offset);
      return false;
    }
  }
  return true;
}

void TakeDecision(const rjdbi_v1_AdmitDecision& message, Decision* decision) {
  decision->verdict = FromWire<Verdict>(message.verdict);
  decision->patched_size = message.patched_size;
  decision->buffer.counter_count = message.counter_count;
  decision->buffer.ring_offset = message.ring_offset;
  decision->buffer.ring_half_bytes = message.ring_half_bytes;
  decision->buffer.ring_record_sizes = message.ring_record_sizes;
  decision->buffer.ring_sites = message.ring_sites;
  decision->generation = message.generation;
  decision->has_patched_digest = message.patched_sha256.size == decision->patched_digest.size();
  if (decision->has_patched_digest) {
    std::memcpy(decision->patched_digest.data(), message.patched_sha256.bytes,
                decision->patched_digest.size());
  }
}

}  // namespace

WireBytes EncodeOpenSession(const ProcessInfo& process) {
  std::string executable_text = Utf8(process.executable);
  std::string command_text = Utf8(process.command_line);
  ByteView executable = View(executable_text);
  ByteView command_line = View(command_text);
  ByteView version = View(process.agent_version);
  ByteView through = View(process.loaded_through);
  rjdbi_v1_OpenSessionRequest message = rjdbi_v1_OpenSessionRequest_init_zero;
  message.pid = process.pid;
  message.executable = Encoder(&executable);
  message.command_line = Encoder(&command_line);
  message.agent_version = Encoder(&version);
  message.loaded_through = Encoder(&through);
  message.follows = process.follows;
  return Encode(rjdbi_v1_OpenSessionRequest_fields, &message);
}

WireBytes EncodeObjectHeader(const WireBytes& session_id, const ObjectHeader& header) {
  std::string origin_text = Utf8(header.origin);
  std::string isa_text = Utf8(header.agent_isa);
  ByteView session = View(session_id);
  ByteView digest = View(header.digest);
  ByteView origin = View(origin_text);
  ByteView isa = View(isa_text);
  rjdbi_v1_AdmitRequest message = rjdbi_v1_AdmitRequest_init_zero;
  message.has_header = true;
  message.header.session_id = Encoder(&session);
  message.header.sha256 = Encoder(&digest);
  message.header.size = header.size;
  message.header.origin = Encoder(&origin);
  message.header.load_id = header.load_id;
  message.header.agent_isa = Encoder(&isa);
  message.header.gpu_node = header.gpu_node;
  message.header.beside = header.beside;
  message.header.beside_load_id = header.beside_load_id;
  return Encode(rjdbi_v1_AdmitRequest_fields, &message);
}

WireBytes EncodeChunkPrefix(size_t size) {
  WireBytes out;
  pb_ostream_t stream{&Append, &out, SIZE_MAX, 0, nullptr};
  if (!pb_encode_tag(&stream, PB_WT_STRING, rjdbi_v1_AdmitRequest_chunk_tag) ||
      !pb_encode_varint(&stream, size)) {
    throw std::bad_alloc();
  }
  return out;
}

WireBytes EncodeReport(const WireBytes& session_id, const std::vector<LoadCounters>& loads,
                       const std::vector<Gap>& gaps) {
  ByteView session = View(session_id);
  rjdbi_v1_ReportRequest message = rjdbi_v1_ReportRequest_init_zero;
  message.session_id = Encoder(&session);
  message.loads = Encoder(&EncodeLoads, &loads);
  message.gaps = Encoder(&EncodeGaps, &gaps);
  return Encode(rjdbi_v1_ReportRequest_fields, &message);
}

WireBytes EncodeBatches(const WireBytes& session_id, const std::vector<RecordBatch>& batches) {
  ByteView session = View(session_id);
  rjdbi_v1_ReportRequest message = rjdbi_v1_ReportRequest_init_zero;
  message.session_id = Encoder(&session);
  message.batches = Encoder(&EncodeBatchList, &batches);
  return Encode(rjdbi_v1_ReportRequest_fields, &message);
}

WireBytes EncodeWatch(const WireBytes& session_id, uint64_t seen, uint32_t max_wait_ms) {
  ByteView session = View(session_id);
  rjdbi_v1_WatchRequest message = rjdbi_v1_WatchRequest_init_zero;
  message.session_id = Encoder(&session);
  message.seen = seen;
  message.max_wait_ms = max_wait_ms;
  return Encode(rjdbi_v1_WatchRequest_fields, &message);
}

WireBytes EncodeCloseSession(const WireBytes& session_id) {
  ByteView session = View(session_id);
  rjdbi_v1_CloseSessionRequest message = rjdbi_v1_CloseSessionRequest_init_zero;
  message.session_id = Encoder(&session);
  return Encode(rjdbi_v1_CloseSessionRequest_fields, &message);
}

bool DecodeSession(ByteView bytes, SessionInfo* session, std::string* why) {
  rjdbi_v1_OpenSessionReply message = rjdbi_v1_OpenSessionReply_init_zero;
  pb_istream_t stream = pb_istream_from_buffer(bytes.data, bytes.size);
  if (!pb_decode(&stream, rjdbi_v1_OpenSessionReply_fields, &message)) {
    return Malformed(stream, "OpenSessionReply", why);
  }
  if (message.session_id.size == 0) {
    *why = "OpenSessionReply without a session id";
    return false;
  }
  session->session_id.assign(message.session_id.bytes,
                             message.session_id.bytes + message.session_id.size);
  session->report_interval_ms = message.report_interval_ms;
  session->max_code_object_bytes = message.max_code_object_bytes;
  return true;
}

bool DecodeWatch(ByteView bytes, WatchAnswer* answer, std::string* why) {
  rjdbi_v1_WatchReply message = rjdbi_v1_WatchReply_init_zero;
  pb_istream_t stream = pb_istream_from_buffer(bytes.data, bytes.size);
  if (!pb_decode(&stream, rjdbi_v1_WatchReply_fields, &message)) {
    return Malformed(stream, "WatchReply", why);
  }
  if (message.generation == 0) {
    *why = "WatchReply without a generation";
    return false;
  }
  *answer = {message.generation, message.attachments};
  return true;
}

bool DecodeAdmitReply(ByteView bytes, const DecodeLimits& limits, ChunkSink* sink,
                      AdmitReplyKind* kind, Decision* decision, std::string* why) {
  StringTarget summary{&decision->summary, limits.max_summary_bytes};
  FixupTarget fixups{&decision->fixups, limits.max_fixups};
  ListTarget<KernelSwitch> switches{&decision->switches, limits.max_switches};
  ListTarget<KernelRestore> restores{&decision->restores, limits.max_switches};
  ChunkTarget chunk{sink};
  rjdbi_v1_AdmitReply message = rjdbi_v1_AdmitReply_init_zero;
  message.decision.summary = Decoder(&DecodeString, &summary);
  message.decision.fixups = Decoder(&DecodeFixup, &fixups);
  message.decision.kernel_switches = Decoder(&DecodeSwitch, &switches);
  message.decision.kernel_restores = Decoder(&DecodeRestore, &restores);
  message.chunk = Decoder(&DecodeChunk, &chunk);

  pb_istream_t stream = pb_istream_from_buffer(bytes.data, bytes.size);
  if (!pb_decode(&stream, rjdbi_v1_AdmitReply_fields, &message)) {
    return Malformed(stream, "AdmitReply", why);
  }
  if (message.has_need_bytes + message.has_decision + chunk.seen != 1) {
    *why = "AdmitReply with not exactly one part";
    return false;
  }
  if (message.has_need_bytes) {
    *kind = AdmitReplyKind::kNeedBytes;
  } else if (chunk.seen) {
    *kind = AdmitReplyKind::kChunk;
  } else {
    *kind = AdmitReplyKind::kDecision;
    TakeDecision(message.decision, decision);
    return CheckDecision(*decision, limits, why);
  }
  return true;
}

}  // namespace rjdbi::agent
