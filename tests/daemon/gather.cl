// A kernel whose loads the compiler puts in a clause (gfx1030), and one named like
// those that the HIP runtime brings along.
kernel void gather(global uint* out, global const uint* in, global const uint* index) {
  uint i = __builtin_amdgcn_workitem_id_x();
  out[i] = in[i] + in[i + 64] + index[i] + index[i + 64];
}

kernel void __amd_rocclr_fill(global uint* out) { out[__builtin_amdgcn_workitem_id_x()] = 0; }
