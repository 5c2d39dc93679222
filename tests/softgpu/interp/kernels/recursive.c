// A recursive device function: dynamic stack, calls, callee-saved registers and
// flat addressing (C's pointers are generic).
#define KERNEL __attribute__((amdgpu_kernel))

unsigned ackermann_like(unsigned depth, unsigned x) __attribute__((noinline));
unsigned ackermann_like(unsigned depth, unsigned x) {
  volatile unsigned keep = x + depth;
  if (depth == 0) return keep * 3 + 1;
  const unsigned left = ackermann_like(depth - 1, x + 1);
  return left ^ ackermann_like(depth - 1, left + keep);
}

KERNEL void recurse(const unsigned* in, unsigned* out) {
  const unsigned i = __builtin_amdgcn_workitem_id_x();
  out[i] = ackermann_like(in[i] & 3, in[i]);
}
