// Kernels that the interpreter's tests run on every generation. Freestanding:
// no device library, so every index comes from compiler builtins.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define LID __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define NOINLINE __attribute__((noinline))
#define SIZE(n) __attribute__((reqd_work_group_size(n, 1, 1)))

typedef unsigned int u32;
typedef unsigned long u64;

static void barrier_all(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__kernel SIZE(256) void vadd(__global const float* a, __global const float* b, __global float* c,
                             u32 n) {
  u32 i = GROUP * 256 + LID;
  if (i < n) c[i] = a[i] + b[i];
}

__kernel SIZE(256) void reduce(__global const u32* in, __global u32* out) {
  __local u32 tile[256];
  u32 lid = LID;
  tile[lid] = in[GROUP * 256 + lid];
  for (u32 step = 128; step > 0; step >>= 1) {
    barrier_all();
    if (lid < step) tile[lid] += tile[lid + step];
  }
  if (lid == 0) out[GROUP] = tile[0];
}

__kernel SIZE(64) void collatz(__global const u32* in, __global u32* steps) {
  u32 i = GROUP * 64 + LID;
  u32 x = in[i], n = 0;
  while (x != 1) {
    if (x & 1)
      x = 3 * x + 1;
    else
      x >>= 1;
    ++n;
  }
  steps[i] = n;
}

// Dynamic indexing keeps the array in scratch memory.
__kernel SIZE(128) void scratch(__global const u32* in, __global u32* out) {
  volatile u32 buffer[40];
  volatile unsigned char bytes[24];
  u32 i = GROUP * 128 + LID;
  for (u32 k = 0; k < 40; ++k) buffer[k] = in[i] * (k + 1);
  for (u32 k = 0; k < 24; ++k) bytes[k] = (unsigned char)(in[i] + k);
  u32 sum = 0;
  for (u32 k = 0; k < 10; ++k) sum += buffer[(in[i] + k * 7) % 40] + bytes[(i + k) % 24];
  out[i] = sum;
}

NOINLINE u32 mix(u32 a, u32 b) {
  volatile u32 keep = a ^ 0x9e3779b9;
  return (keep << 5 | keep >> 27) + b * 2654435761u;
}

__kernel SIZE(64) void call(__global const u32* in, __global u32* out) {
  u32 i = GROUP * 64 + LID;
  u32 x = mix(in[i], i);
  if (x & 1) x = mix(x, 7);
  out[i] = x;
}

__kernel SIZE(256) void histogram(__global const u32* in, __global u32* bins, u32 n) {
  __local u32 local_bins[64];
  if (LID < 64) local_bins[LID] = 0;
  barrier_all();
  for (u32 i = GROUP * 256 + LID; i < n; i += 1024) {
    __opencl_atomic_fetch_add((__local atomic_uint*)&local_bins[in[i] & 63], 1u, __ATOMIC_RELAXED,
                              __OPENCL_MEMORY_SCOPE_WORK_GROUP);
  }
  barrier_all();
  if (LID < 64) {
    __opencl_atomic_fetch_add((__global atomic_uint*)&bins[LID], local_bins[LID], __ATOMIC_RELAXED,
                              __OPENCL_MEMORY_SCOPE_DEVICE);
  }
}

// The three address spaces through one generic pointer.
NOINLINE u32 load_generic(u32* p, u32 i) { return p[i]; }

__kernel SIZE(64) void any_space(__global u32* in, __global u32* out) {
  __local u32 shared_words[64];
  u32 private_words[4];
  u32 lid = LID;
  for (u32 k = 0; k < 4; ++k) private_words[k] = in[lid] + k * 100;
  shared_words[lid] = in[lid] * 3;
  barrier_all();
  out[lid] = load_generic((u32*)in, lid) + load_generic((u32*)shared_words, 63 - lid) +
             load_generic((u32*)private_words, lid & 3);
}

__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void matmul(__global const float* a,
                                                                     __global const float* b,
                                                                     __global float* c, u32 n) {
  __local float ta[16][16], tb[16][16];
  u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y();
  u32 col = __builtin_amdgcn_workgroup_id_x() * 16 + x;
  u32 row = __builtin_amdgcn_workgroup_id_y() * 16 + y;
  float sum = 0;
  for (u32 t = 0; t < n; t += 16) {
    ta[y][x] = a[row * n + t + x];
    tb[y][x] = b[(t + y) * n + col];
    barrier_all();
    for (u32 k = 0; k < 16; ++k) sum = __builtin_fmaf(ta[y][k], tb[k][x], sum);
    barrier_all();
  }
  c[row * n + col] = sum;
}

__kernel SIZE(64) void wide(__global const u64* in, __global u64* out, __global const double* f,
                            __global double* g) {
  u32 i = GROUP * 64 + LID;
  u64 x = in[i];
  out[i] = x * 6364136223846793005ul + (x >> (i & 63)) + (u64)((long)x >> 7) + (x / 1000003);
  g[i] = __builtin_fma(f[i], 1.5, -0.25) + (double)(long)(x & 0xffff);
}

__kernel SIZE(64) void half_math(__global const half* in, __global half* out) {
  u32 i = GROUP * 64 + LID;
  out[i] = in[i] * (half)0.5f + (half)1.0f;
}

__kernel SIZE(64) void bytes(__global const unsigned char* in, __global signed char* out,
                             __global const short* s, __global unsigned short* t) {
  u32 i = GROUP * 64 + LID;
  out[i] = (signed char)(in[i] - 128);
  t[i] = (unsigned short)(s[i] >> 2);
}

// Work-item and group ids of all three axes.
__kernel __attribute__((reqd_work_group_size(4, 3, 2))) void ids(__global u32* out) {
  u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y(),
      z = __builtin_amdgcn_workitem_id_z();
  u32 gx = __builtin_amdgcn_workgroup_id_x(), gy = __builtin_amdgcn_workgroup_id_y(),
      gz = __builtin_amdgcn_workgroup_id_z();
  u32 group = (gz * 3 + gy) * 2 + gx;
  u32 item = (z * 3 + y) * 4 + x;
  out[group * 24 + item] = x | y << 4 | z << 8 | gx << 12 | gy << 16 | gz << 20;
}

// Cross-lane: ballot through a comparison mask, first lane, backward permute.
__kernel SIZE(64) void lanes(__global const u32* in, __global u32* out) {
  u32 i = GROUP * 64 + LID;
  u32 x = in[i];
  u32 first = __builtin_amdgcn_readfirstlane(x);
  u32 neighbour = __builtin_amdgcn_ds_bpermute((int)((LID ^ 1) * 4), (int)x);
  u32 swizzled = __builtin_amdgcn_ds_swizzle((int)x, 0x041f);
  out[i] = first + neighbour * 3 + swizzled * 5;
}

// Writes where nothing is mapped.
__kernel SIZE(64) void wild(__global u32* out) { out[(u64)LID << 34] = 1; }
