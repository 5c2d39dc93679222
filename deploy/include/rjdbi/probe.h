/* For writing rjdbi user probes: device functions that rjdbi puts in line at
 * instructions of kernels that are already compiled. See docs/user-probes.md.
 *
 *   #include <rjdbi/probe.h>
 *
 *   RJDBI_PROBE misaligned(rjdbi_u64 address, RJDBI_TELEMETRY counters) {
 *     rjdbi_count(counters, (address & 3) != 0);
 *   }
 *
 * HIP and OpenCL C; needs no other header and no device library. A probe takes 32
 * and 64-bit arguments, at most 31 words, and returns nothing. It has no stack, no
 * LDS, no loop but uniform ones from a constant to a constant, and after inlining calls
 * nothing: everything here is inlined.
 */
#ifndef RJDBI_PROBE_H_
#define RJDBI_PROBE_H_

#ifdef __OPENCL_C_VERSION__
typedef uint rjdbi_u32;
typedef ulong rjdbi_u64;
#define RJDBI_PROBE __attribute__((used)) void
#define RJDBI_INLINE static inline __attribute__((always_inline))
#define RJDBI_GLOBAL __global
#define RJDBI_ATOMIC_ADD(p, v)                                                            \
  (void)__opencl_atomic_fetch_add((__global atomic_ulong*)(p), (v), memory_order_relaxed, \
                                  memory_scope_all_svm_devices)
#else
typedef unsigned int rjdbi_u32;
typedef unsigned long long rjdbi_u64;
#define RJDBI_PROBE extern "C" __attribute__((device, used)) void
#define RJDBI_INLINE static inline __attribute__((device, always_inline))
#define RJDBI_GLOBAL __attribute__((address_space(1)))
#define RJDBI_ATOMIC_ADD(p, v) \
  (void)__hip_atomic_fetch_add((p), (v), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#endif

/* The site's own block of 64-bit words, telemetry_words of them in the manifest.
 * They are zero when the code object is loaded, and reported as they are. Memory
 * that the host reads: use relaxed system-scope atomics, as below. */
typedef RJDBI_GLOBAL rjdbi_u64* RJDBI_TELEMETRY;

/* Adds to *counter in each active lane. */
RJDBI_INLINE void rjdbi_add(RJDBI_TELEMETRY counter, rjdbi_u64 value) {
  RJDBI_ATOMIC_ADD(counter, value);
}

/* Lanes in which `condition` holds, among those that are active here. */
RJDBI_INLINE rjdbi_u64 rjdbi_ballot(int condition) {
  return __builtin_amdgcn_uicmp((rjdbi_u32)condition, 0u, 33 /* != */);
}

#ifdef __AMDGCN_WAVEFRONT_SIZE
#define RJDBI_WAVEFRONT_SIZE __AMDGCN_WAVEFRONT_SIZE
#else
#define RJDBI_WAVEFRONT_SIZE __builtin_amdgcn_wavefrontsize()
#endif

/* How many of `lanes` come before this one. */
RJDBI_INLINE rjdbi_u32 rjdbi_before(rjdbi_u64 lanes) {
  const rjdbi_u32 low = __builtin_amdgcn_mbcnt_lo((rjdbi_u32)lanes, 0u);
  if (RJDBI_WAVEFRONT_SIZE == 32) return low;
  return __builtin_amdgcn_mbcnt_hi((rjdbi_u32)(lanes >> 32), low);
}

/* The lane's number in its wavefront. */
RJDBI_INLINE rjdbi_u32 rjdbi_lane(void) { return rjdbi_before(~(rjdbi_u64)0); }

/* Adds the number of active lanes in which `condition` holds to *counter, which
 * must be the same in all of them: one atomic of one lane. */
RJDBI_INLINE void rjdbi_count(RJDBI_TELEMETRY counter, int condition) {
  const rjdbi_u64 lanes = rjdbi_ballot(condition);
  if (condition && rjdbi_before(lanes) == 0) {
    RJDBI_ATOMIC_ADD(counter, (rjdbi_u64)__builtin_popcountll(lanes));
  }
}

#endif /* RJDBI_PROBE_H_ */
