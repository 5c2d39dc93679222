// Counts the lanes whose address is not a multiple of four, and all lanes.
#include <rjdbi/probe.h>

RJDBI_PROBE misaligned(rjdbi_u64 address, RJDBI_TELEMETRY counters) {
  rjdbi_count(counters, (address & 3) != 0);
  rjdbi_count(counters + 1, 1);
}

// How the addresses of a wavefront's lanes fall on the eight words of 32 bytes.
RJDBI_PROBE word_histogram(rjdbi_u64 address, RJDBI_TELEMETRY counters) {
  rjdbi_add(counters + ((address >> 2) & 7), 1);
}
