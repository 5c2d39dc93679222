// The kernel that hsa_loader_paths dispatches by default; compiled to a bare
// code object for each target. Only built-ins, no device library.
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void loader_kernel(global uint* out, uint n) {
  const uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < n) out[i] = i * 7 + 3;
}
