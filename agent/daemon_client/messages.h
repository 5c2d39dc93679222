// admission.proto on the wire. The only file that touches nanopb; everything
// decoded here came from another process and is bounded before it is kept.
#ifndef RJDBI_AGENT_DAEMON_CLIENT_MESSAGES_H_
#define RJDBI_AGENT_DAEMON_CLIENT_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "agent/record_batches.h"
#include "agent/types.h"

namespace rjdbi::agent {

using WireBytes = std::vector<uint8_t>;

struct SessionInfo {
  WireBytes session_id;
  uint32_t report_interval_ms = 0;
  uint64_t max_code_object_bytes = 0;  // 0: the daemon named no limit
};

struct ProcessInfo {
  uint32_t pid = 0;
  std::string executable;
  std::string command_line;
  std::string agent_version;
  std::string loaded_through;
  bool follows = false;  // it is going to call Watch
};

struct ObjectHeader {
  Sha256Digest digest{};
  uint64_t size = 0;  // bytes
  std::string origin;
  uint64_t load_id = 0;
  std::string agent_isa;
  uint32_t gpu_node = 0;
  bool beside = false;          // asks for an image to load beside what is loaded already
  uint64_t beside_load_id = 0;  // the load that it would stand beside
};

// What one AdmitReply held. A chunk's bytes were written to the ChunkSink.
enum class AdmitReplyKind { kNeedBytes, kDecision, kChunk };

// Where chunks of the patched image go.
struct ChunkSink {
  uint8_t* next = nullptr;
  size_t room = 0;  // bytes still expected
};

struct DecodeLimits {
  uint32_t max_counters = 0;
  size_t max_fixups = 0;
  size_t max_summary_bytes = 0;
  size_t max_switches = 0;  // and restores
  bool beside = false;      // what only an image beside the original may have is allowed
};

// Encoders throw only std::bad_alloc.
WireBytes EncodeOpenSession(const ProcessInfo& process);
WireBytes EncodeObjectHeader(const WireBytes& session_id, const ObjectHeader& header);
// What precedes `size` chunk bytes in an AdmitRequest.
WireBytes EncodeChunkPrefix(size_t size);
WireBytes EncodeReport(const WireBytes& session_id, const std::vector<LoadCounters>& loads,
                       const std::vector<Gap>& gaps);
WireBytes EncodeBatches(const WireBytes& session_id, const std::vector<RecordBatch>& batches);
WireBytes EncodeWatch(const WireBytes& session_id, uint64_t seen, uint32_t max_wait_ms);
WireBytes EncodeCloseSession(const WireBytes& session_id);

// False, with a reason, on anything malformed or out of bounds.
bool DecodeSession(ByteView bytes, SessionInfo* session, std::string* why);
bool DecodeWatch(ByteView bytes, WatchAnswer* answer, std::string* why);
bool DecodeAdmitReply(ByteView bytes, const DecodeLimits& limits, ChunkSink* sink,
                      AdmitReplyKind* kind, Decision* decision, std::string* why);

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_DAEMON_CLIENT_MESSAGES_H_
