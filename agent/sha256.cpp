// The one place that knows nettle.
#include "agent/sha256.h"

#include <nettle/sha2.h>

namespace rjdbi::agent {

Sha256Digest Sha256(ByteView bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size, bytes.data);
  Sha256Digest digest;
  sha256_digest(&context, digest.size(), digest.data());
  return digest;
}

}  // namespace rjdbi::agent
