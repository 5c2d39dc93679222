// Probes with loops that the compiler leaves: uniform ones from constants to constants.
#include <rjdbi/probe.h>

// Lanes in whose address bit 2, 3, 4 is set.
RJDBI_PROBE address_bits(rjdbi_u64 address, RJDBI_TELEMETRY counters) {
#pragma nounroll
  for (int bit = 0; bit < 3; ++bit) rjdbi_count(counters + bit, (address >> (bit + 2)) & 1);
}
