// SHA-256 of code objects: how the daemon recognises what it has already seen.
//
// The implementation is nettle's, linked statically and hidden. The host may
// have any OpenSSL (or a copy of it) of its own, and two of them in one process
// clash; libcrypto also costs a millisecond of start-up. Nettle's hashes are
// plain functions over a caller's context: no globals, no allocation, no
// threads, safe after fork, and it picks the SHA instructions where the
// processor has them. AF_ALG copies the bytes through a socket and is missing
// in many containers.
#ifndef RJDBI_AGENT_SHA256_H_
#define RJDBI_AGENT_SHA256_H_

#include "agent/types.h"

namespace rjdbi::agent {

Sha256Digest Sha256(ByteView bytes);

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_SHA256_H_
