// The isa comes from the KFD topology (gfx_target_version): SMI does not know it.
#include "daemon/gpu_inventory.h"

#include <dlfcn.h>
#include <rocm_smi/rocm_smi.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rjdbi::daemon {
namespace {

struct Smi {
  void* library = nullptr;
  decltype(&rsmi_init) init = nullptr;
  decltype(&rsmi_shut_down) shut_down = nullptr;
  decltype(&rsmi_num_monitor_devices) count = nullptr;
  decltype(&rsmi_dev_name_get) name = nullptr;
  decltype(&rsmi_dev_pci_id_get) pci = nullptr;

  template <typename Function>
  bool Get(const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    return function != nullptr;
  }
  bool Resolve() {
    return Get("rsmi_init", init) && Get("rsmi_shut_down", shut_down) &&
           Get("rsmi_num_monitor_devices", count) && Get("rsmi_dev_name_get", name) &&
           Get("rsmi_dev_pci_id_get", pci);
  }
};

std::string PciAddress(uint64_t bdf) {
  return absl::StrFormat("%04x:%02x:%02x.%x", bdf >> 32, (bdf >> 8) & 0xff, (bdf >> 3) & 0x1f,
                         bdf & 0x7);
}

// gfx_target_version 90010 is gfx90a: major, minor and stepping, two decimal
// digits each (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
std::string IsaOf(uint64_t version) {
  return absl::StrFormat("gfx%d%x%x", version / 10000, version / 100 % 100, version % 100);
}

// PCI bus/device/function (as KFD's location_id) -> isa.
std::map<uint64_t, std::string> TopologyIsas() {
  std::map<uint64_t, std::string> isas;
  std::error_code error;
  const std::filesystem::path nodes = "/sys/class/kfd/kfd/topology/nodes";
  for (const auto& node : std::filesystem::directory_iterator(nodes, error)) {
    std::map<std::string, uint64_t> properties;
    std::ifstream in(node.path() / "properties");
    std::string key;
    for (uint64_t value; in >> key >> value;) properties[key] = value;
    if (properties["gfx_target_version"] == 0) continue;
    isas[properties["domain"] << 32 | properties["location_id"]] =
        IsaOf(properties["gfx_target_version"]);
  }
  return isas;
}

GpuInventory Query(const Smi& smi) {
  GpuInventory inventory;
  uint32_t count = 0;
  const rsmi_status_t status = smi.count(&count);
  if (status != RSMI_STATUS_SUCCESS || count == 0) {
    inventory.note = "no AMD GPU found by ROCm SMI";
    return inventory;
  }
  const std::map<uint64_t, std::string> isas = TopologyIsas();
  for (uint32_t i = 0; i < count; ++i) {
    v1::Gpu gpu;
    gpu.set_index(i);
    char name[256] = {};
    if (smi.name(i, name, sizeof(name)) == RSMI_STATUS_SUCCESS) gpu.set_name(name);
    uint64_t bdf = 0;
    if (smi.pci(i, &bdf) == RSMI_STATUS_SUCCESS) {
      gpu.set_pci_address(PciAddress(bdf));
      const auto isa = isas.find((bdf >> 32) << 32 | (bdf & 0xffff));
      if (isa != isas.end()) gpu.set_isa(isa->second);
    }
    inventory.gpus.push_back(std::move(gpu));
  }
  return inventory;
}

}  // namespace

GpuInventory ReadGpuInventory() {
  GpuInventory inventory;
  // Asked first: SMI prints to standard output when there is no driver.
  if (access("/sys/class/kfd", F_OK) != 0 && access("/sys/module/amdgpu", F_OK) != 0) {
    inventory.note = "no amdgpu driver is loaded on this machine";
    return inventory;
  }
  Smi smi;
  smi.library = dlopen("librocm_smi64.so.1", RTLD_NOW | RTLD_LOCAL);
  if (smi.library == nullptr) {
    inventory.note = "librocm_smi64.so.1 is not installed";
    return inventory;
  }
  if (!smi.Resolve()) {
    inventory.note = "librocm_smi64.so.1 lacks an expected function";
  } else if (smi.init(0) != RSMI_STATUS_SUCCESS) {
    inventory.note = "ROCm SMI could not be initialised";
  } else {
    inventory = Query(smi);
    smi.shut_down();
  }
  dlclose(smi.library);
  return inventory;
}

}  // namespace rjdbi::daemon
