// EF_AMDGPU_MACH numbers. Source: LLVM AMDGPUUsage "AMDGPU ELF Header e_flags"
// and "AMDGPU Target ID" (which processors have xnack and sramecc).
#ifndef PATCH_CODEOBJECT_MACHINES_H_
#define PATCH_CODEOBJECT_MACHINES_H_

#include <cstdint>

namespace rjdbi::patch {

struct Machine {
  uint8_t mach;
  const char* processor;
  bool xnack, sramecc;
};

inline constexpr Machine kMachines[] = {
    {0x20, "gfx600", false, false},  {0x21, "gfx601", false, false},
    {0x22, "gfx700", false, false},  {0x23, "gfx701", false, false},
    {0x24, "gfx702", false, false},  {0x25, "gfx703", false, false},
    {0x26, "gfx704", false, false},  {0x28, "gfx801", true, false},
    {0x29, "gfx802", false, false},  {0x2a, "gfx803", false, false},
    {0x2b, "gfx810", true, false},   {0x2c, "gfx900", true, false},
    {0x2d, "gfx902", true, false},   {0x2e, "gfx904", true, false},
    {0x2f, "gfx906", true, true},    {0x30, "gfx908", true, true},
    {0x31, "gfx909", true, false},   {0x32, "gfx90c", true, false},
    {0x33, "gfx1010", true, false},  {0x34, "gfx1011", true, false},
    {0x35, "gfx1012", true, false},  {0x36, "gfx1030", false, false},
    {0x37, "gfx1031", false, false}, {0x38, "gfx1032", false, false},
    {0x39, "gfx1033", false, false}, {0x3a, "gfx602", false, false},
    {0x3b, "gfx705", false, false},  {0x3c, "gfx805", false, false},
    {0x3d, "gfx1035", false, false}, {0x3e, "gfx1034", false, false},
    {0x3f, "gfx90a", true, true},    {0x40, "gfx940", true, true},
    {0x41, "gfx1100", false, false}, {0x42, "gfx1013", true, false},
    {0x43, "gfx1150", false, false}, {0x44, "gfx1103", false, false},
    {0x45, "gfx1036", false, false}, {0x46, "gfx1101", false, false},
    {0x47, "gfx1102", false, false}, {0x48, "gfx1200", false, false},
    {0x49, "gfx1250", false, true},  {0x4a, "gfx1151", false, false},
    {0x4b, "gfx941", true, true},    {0x4c, "gfx942", true, true},
    {0x4e, "gfx1201", false, false}, {0x4f, "gfx950", true, true},
    {0x55, "gfx1152", false, false},
};

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_MACHINES_H_
