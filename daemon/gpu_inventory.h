// Which GPUs this machine has, by ROCm SMI's word.
#ifndef DAEMON_GPU_INVENTORY_H_
#define DAEMON_GPU_INVENTORY_H_

#include <string>
#include <vector>

#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

struct GpuInventory {
  std::vector<v1::Gpu> gpus;
  std::string note;  // why gpus is empty, when it is
};

// Loads librocm_smi64.so.1 at run time: a machine without ROCm runs rjdbid too.
GpuInventory ReadGpuInventory();

}  // namespace rjdbi::daemon

#endif  // DAEMON_GPU_INVENTORY_H_
