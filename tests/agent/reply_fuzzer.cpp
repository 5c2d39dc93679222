// libFuzzer: the daemon's replies as the agent decodes them. The first byte picks
// the message, the second how much of the patched image is still expected.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "agent/daemon_client/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rjdbi::agent;
  if (size < 2) return 0;
  ByteView bytes{data + 2, size - 2};
  std::string why;
  if (data[0] & 1) {
    SessionInfo session;
    if (DecodeSession(bytes, &session, &why) && session.session_id.empty()) std::abort();
    return 0;
  }
  std::vector<uint8_t> image(data[1]);
  ChunkSink sink{image.data(), image.size()};
  const DecodeLimits limits{1000, 64, 100};
  AdmitReplyKind kind;
  Decision decision;
  if (!DecodeAdmitReply(bytes, limits, &sink, &kind, &decision, &why)) return 0;
  if (sink.room > image.size() || decision.fixups.size() > limits.max_fixups) std::abort();
  if (kind == AdmitReplyKind::kDecision && decision.verdict == Verdict::kPatched) {
    for (const Fixup& fixup : decision.fixups) {
      if (fixup.file_offset > decision.patched_size - 4 ||
          fixup.addend >= decision.buffer.bytes()) {
        std::abort();
      }
    }
  }
  return 0;
}
