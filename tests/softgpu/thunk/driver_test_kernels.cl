// Kernels of driver_test.cpp: only built-ins, no device library.

// Stores the work-item's id to out[id].
kernel void store_ids(global uint* out) {
  const uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  out[i] = i;
}

// One store, wherever the address leads.
kernel void poke(ulong address) {
  *(global volatile uint*)address = 1;
}

kernel void spin(global volatile uint* flag) {
  while (*flag == 0) {
  }
}

kernel void illegal(global uint* out) {
  __asm volatile(".long 0xffffffff");
  out[0] = 1;
}

kernel void trap(global uint* out) {
  __builtin_trap();
  out[0] = 1;
}

// Indexes private memory at run time.
kernel void private_array(global uint* out, uint rounds) {
  uint slots[40];
  const uint lane = __builtin_amdgcn_workitem_id_x();
  for (uint i = 0; i < 40; ++i) slots[i] = i * lane;
  uint at = lane % 40;
  for (uint i = 0; i < rounds; ++i) {
    slots[at] += i;
    at = (at + slots[at]) % 40;
  }
  out[lane] = slots[at] + at;
}
