// Two small kernels: one stores to global memory, one goes through LDS.
kernel void add_one(global uint* data) {
  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  data[i] += 1;
}

kernel void lds_sum(global uint* out, global const uint* in) {
  local uint shared_values[64];
  uint i = __builtin_amdgcn_workitem_id_x();
  shared_values[i] = in[i];
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[i] = shared_values[63 - i] + shared_values[i ^ 1];
}
