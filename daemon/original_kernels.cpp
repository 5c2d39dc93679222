#include "daemon/original_kernels.h"

#include <set>
#include <string>

#include "patch/codeobject/code_object.h"

namespace rjdbi::daemon {
namespace {

constexpr uint64_t kDescriptorBytes = 64;

}  // namespace

std::vector<v1::KernelRestore> OriginalKernels(
    absl::Span<const uint8_t> object, const v1::AdmissionRecord& loaded,
    const std::vector<contract::KernelSwitch>& switches) {
  std::set<std::string> wanted;
  for (const v1::Coverage& part : loaded.coverage()) {
    const bool runs_probes = part.attached() + part.degraded() > 0 && !part.kernel().empty();
    if (runs_probes && part.placement().placement() == v1::CLONE) wanted.insert(part.kernel());
  }
  for (const contract::KernelSwitch& replaced : switches) wanted.erase(replaced.kernel);
  std::vector<v1::KernelRestore> restores;
  if (wanted.empty()) return restores;
  const absl::StatusOr<patch::CodeObject> parsed = patch::CodeObject::Parse(object);
  if (!parsed.ok()) return restores;
  for (const patch::Kernel& kernel : parsed->kernels()) {
    if (wanted.count(kernel.name) == 0) continue;
    const auto bytes = parsed->AtVaddr(kernel.descriptor_vaddr, kDescriptorBytes);
    if (bytes.empty()) continue;
    v1::KernelRestore& restore = restores.emplace_back();
    restore.set_kernel(kernel.name);
    restore.set_patched_descriptor(kernel.descriptor_vaddr);
    restore.set_original(bytes.data(), bytes.size());
    restore.set_code(kernel.entry_vaddr);
  }
  return restores;
}

}  // namespace rjdbi::daemon
