// Two small kernels: LDS with a barrier, and 64-bit data.
kernel void add(global int* a, global const int* b) {
  local int tile[256];
  int i = __builtin_amdgcn_workitem_id_x();
  tile[i] = a[i];
  __builtin_amdgcn_s_barrier();
  a[i] += b[i] + tile[i ^ 1];
}

kernel void scale(global double* a, double by) {
  a[__builtin_amdgcn_workitem_id_x()] *= by;
}
