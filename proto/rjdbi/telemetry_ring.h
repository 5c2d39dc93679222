/* The ring of trace records in a load's telemetry buffer: layout and protocol.
 *
 * Written by code on the GPU (patch/rewrite makes it, contract/ proves its
 * bounds), read by the agent on the host. Plain C, because both sides and probe
 * sources include it. All numbers are little-endian. Why it is like this:
 * docs/decisions/0008-telemetry-ring.md.
 *
 * A load's buffer: its 64-bit counters, then, at a multiple of 256 bytes,
 *
 *   struct rjdbi_ring_header       256 bytes
 *   half 0, half 1                 half_bytes each, a power of two
 *   pad                            RJDBI_RING_PAD_BYTES, never written (see below)
 *
 * One half is open: writers append to it. The other is closed: the host reads it.
 *
 * Reserving. `reservation` counts the bytes that were asked of the open half; bit 3
 * says which half that is. A wavefront adds its record's size, a multiple of 16, by
 * one 64-bit atomic that returns the value before, the ticket:
 *   ticket <= half_bytes - size + 8      (unsigned, 64 bits)
 *     the record's place is the wavefront's own:
 *       p = (ticket + (ticket << (log2(half_bytes) - 3))) & (2 * half_bytes - 16)
 *       bytes from the end of the header. Bit 3 of the ticket, shifted, selects the
 *       half; the rest of it, a multiple of 16, vanishes from the mask.
 *   otherwise
 *     the half is full. The record is lost and the wavefront adds 1 to its site's
 *     counter of lost records. No later ticket can fit either.
 * The decision depends on the ticket alone, so nothing races with the host.
 *
 * Reading. When the closed half is empty, the host exchanges `reservation` for 0 or
 * 8, the start of that half, and so closes the other one: what it gets back says how
 * many bytes were asked for. It reads the records from the half's beginning, each
 * once its descriptor is not 0, up to the last that fitted; bytes asked for beyond
 * are lost records. Then it sets the half to zero, before it opens it again. Unread
 * records are never overwritten.
 *
 * Completing. A record's first 16 bytes are written in one aligned store, after all
 * the rest of it has reached memory; they end with the descriptor, which is not 0.
 *
 * The pad: that a record ends within its half follows from the comparison; that no
 * store can leave the buffer follows already from the mask. */
#ifndef RJDBI_TELEMETRY_RING_H_
#define RJDBI_TELEMETRY_RING_H_

#include <stdint.h>

#define RJDBI_RING_VERSION 1u
#define RJDBI_RING_ALIGNMENT 256u
#define RJDBI_RING_HEADER_BYTES 256u
#define RJDBI_RING_PAD_BYTES 1024u
#define RJDBI_RING_LEAST_HALF_BYTES 4096u
#define RJDBI_RING_MOST_HALF_BYTES (1u << 28)
#define RJDBI_RING_HALF_BIT 8u /* of a ticket */

#define RJDBI_RECORD_ALIGNMENT 16u
#define RJDBI_RECORD_MOST_BYTES 1008u /* 63 units */

struct rjdbi_ring_header {
  uint64_t reservation; /* the device's word */
  uint32_t version;     /* from here on the host's, for whoever finds the buffer */
  uint32_t half_bytes;
  uint8_t unused[240];
};

/* The first 16 bytes of every record. */
struct rjdbi_record_header {
  uint64_t exec;       /* the application's EXEC; wave32: high half 0 */
  uint32_t ticket;     /* low half */
  uint32_t descriptor; /* see below */
};

/* descriptor: site in bits 0..19, size in 16-byte units in 20..25, kind in 26..31.
 * The site counts the load's sites that write records. */
#define RJDBI_RECORD_MOST_SITES (1u << 20)
#define RJDBI_RECORD_SIZE_SHIFT 20u
#define RJDBI_RECORD_KIND_SHIFT 26u
#define RJDBI_RECORD_SITE(descriptor) ((descriptor)&0xfffffu)
#define RJDBI_RECORD_BYTES(descriptor) ((((descriptor) >> 20) & 0x3fu) * 16u)
#define RJDBI_RECORD_KIND(descriptor) ((descriptor) >> 26)

/* Bytes 16 to 31 by kind; then, from 32 on, what lanes wrote: lane after lane, 4 or
 * 8 bytes each, of lanes in EXEC only (the others are 0). */
enum rjdbi_record_kind {
  /* Workgroup id x, y, z; wave. No lanes. */
  RJDBI_RECORD_EXEC = 1,
  /* Four uniform words and the lanes' address operands: see RecordLayout. */
  RJDBI_RECORD_ADDRESS = 2,
  /* Time, 64 bits, in the site's clock; wave; 0. No lanes. */
  RJDBI_RECORD_CLOCK = 3,
  /* A scalar register: one or two words; wave; 0. Or a vector register: a word by
   * lane. */
  RJDBI_RECORD_VALUE = 4,
  /* A user probe's own. */
  RJDBI_RECORD_USER = 5
};

#endif /* RJDBI_TELEMETRY_RING_H_ */
