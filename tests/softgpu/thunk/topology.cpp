// See topology.h.
#include "tests/softgpu/thunk/topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace softgpu {
namespace {

constexpr uint16_t kAmdVendor = 0x1002;
constexpr uint32_t kGpuFirstSimd = 0x80001000;  // FComputeIdLo of a discrete GPU

// UTF-16, as the field is declared.
void SetMarketingName(const std::string& name, HsaNodeProperties* p) {
  const size_t n = std::min<size_t>(name.size(), HSA_PUBLIC_NAME_SIZE - 1);
  for (size_t i = 0; i < n; ++i) p->MarketingName[i] = static_cast<unsigned char>(name[i]);
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "CPU";
}

struct Cache {
  uint32_t level, size_kb, line_bytes;
  bool instruction;
};

std::vector<Cache> CachesOf(uint32_t node, const GpuModel& model) {
  if (node == kCpuNode) return {{1, 32, 64, false}, {2, 1024, 64, false}, {3, 16384, 64, false}};
  const uint32_t line = model.major >= 10 || model.stepping == 10 ? 128 : 64;
  return {{1, 16, 64, false}, {1, 32, 64, true}, {2, 4096, line, false}};
}

void DescribeCpu(const GpuModel& model, HsaNodeProperties* p) {
  p->NumCPUCores = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  p->NumMemoryBanks = 1;
  p->NumCaches = static_cast<uint32_t>(CachesOf(kCpuNode, model).size());
  p->MaxEngineClockMhzCCompute = 2000;
  SetMarketingName(CpuName(), p);
}

void DescribeGpu(const Driver& driver, HsaNodeProperties* p) {
  const GpuModel& m = driver.model();
  p->NumFComputeCores = m.ComputeUnits() * m.simd_per_cu;
  p->NumMemoryBanks = 4;
  p->NumCaches = static_cast<uint32_t>(CachesOf(kGpuNode, m).size());
  p->FComputeIdLo = kGpuFirstSimd;
  p->Capability.ui32.QueueSizePowerOfTwo = 1;
  p->Capability.ui32.WatchPointsTotalBits = 2;
  p->Capability.ui32.DoorbellType = 2;
  p->Capability.ui32.SRAM_EDCSupport = m.sramecc;
  p->Capability.ui32.CoherentHostAccess = 0;
  p->MaxWavesPerSIMD = m.waves_per_simd;
  p->LDSSizeInKB = kLdsBytes / 1024;
  p->WaveFrontSize = m.wavefront_size;
  p->NumShaderBanks = m.shader_engines;
  p->NumArrays = m.arrays_per_engine;
  p->NumCUPerArray = m.cu_per_array;
  p->NumSIMDPerCU = m.simd_per_cu;
  p->MaxSlotsScratchCU = m.scratch_slots_per_cu;
  p->EngineId.ui32.Major = m.major;
  p->EngineId.ui32.Minor = m.minor;
  p->EngineId.ui32.Stepping = m.stepping;
  p->EngineId.ui32.uCode = 100;
  p->uCodeEngineVersions.uCodeSDMA = 0x1a5;  // has the HDP flush packet
  p->VendorId = kAmdVendor;
  p->DeviceId = m.device_id;
  p->LocationId = 0x300;  // bus 3
  p->LocalMemSize = driver.vram_bytes();
  p->MaxEngineClockMhzFCompute = 1000;
  p->MaxEngineClockMhzCCompute = 2000;
  p->NumSdmaEngines = 2;
  p->NumSdmaQueuesPerEngine = 8;
  p->NumCpQueues = 24;
  p->NumGws = 64;
  p->UniqueID = 0x736f667467707500 | m.stepping;
  p->VGPRSizePerCU = 512 * 1024;
  p->SGPRSizePerCU = 16 * 1024;
  memcpy(p->AMDName, m.name, strlen(m.name));
  SetMarketingName(std::string("rjdbi software GPU ") + m.name, p);
}

}  // namespace

void DescribeNode(const Driver& driver, uint32_t node, HsaNodeProperties* p) {
  *p = {};
  p->NumIOLinks = kNodes - 1;
  if (node == kCpuNode) {
    DescribeCpu(driver.model(), p);
  } else {
    DescribeGpu(driver, p);
  }
}

void DescribeMemory(const Driver& driver, uint32_t node, uint32_t count,
                    HsaMemoryProperties* properties) {
  std::vector<HsaMemoryProperties> banks;
  auto add = [&banks](HSA_HEAPTYPE type, uint64_t size, uint64_t base) {
    HsaMemoryProperties bank = {};
    bank.HeapType = type;
    bank.SizeInBytes = size;
    bank.VirtualBaseAddress = base;
    bank.Width = type == HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC ? 4096 : 64;
    bank.MemoryClockMax = 1600;
    banks.push_back(bank);
  };
  if (node == kCpuNode) {
    add(HSA_HEAPTYPE_SYSTEM,
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
            static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
        0);
  } else {
    add(HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC, driver.vram_bytes(), 0);
    add(HSA_HEAPTYPE_GPU_LDS, kLdsBytes, kLdsAperture);
    add(HSA_HEAPTYPE_GPU_SCRATCH, uint64_t{4} << 30, kScratchAperture);
    add(HSA_HEAPTYPE_MMIO_REMAP, 4096, reinterpret_cast<uint64_t>(driver.mmio_page()));
  }
  std::copy_n(banks.begin(), std::min<size_t>(count, banks.size()), properties);
}

void DescribeCaches(const Driver& driver, uint32_t node, uint32_t count,
                    HsaCacheProperties* properties) {
  const std::vector<Cache> caches = CachesOf(node, driver.model());
  for (size_t i = 0; i < std::min<size_t>(count, caches.size()); ++i) {
    HsaCacheProperties& p = properties[i];
    p = {};
    p.ProcessorIdLow = node == kCpuNode ? 0 : kGpuFirstSimd;
    p.CacheLevel = caches[i].level;
    p.CacheSize = caches[i].size_kb;
    p.CacheLineSize = caches[i].line_bytes;
    p.CacheLinesPerTag = 1;
    p.CacheType.ui32.Data = !caches[i].instruction;
    p.CacheType.ui32.Instruction = caches[i].instruction;
    p.CacheType.ui32.CPU = node == kCpuNode;
    p.CacheType.ui32.HSACU = node != kCpuNode;
  }
}

void DescribeLinks(uint32_t node, uint32_t count, HsaIoLinkProperties* properties) {
  if (count == 0) return;
  *properties = {};
  properties->IoLinkType = HSA_IOLINKTYPE_PCIEXPRESS;
  properties->NodeFrom = node;
  properties->NodeTo = node == kCpuNode ? kGpuNode : kCpuNode;
  properties->Weight = 20;
}

void DescribeTiles(const Driver& driver, HsaGpuTileConfig* config) {
  config->NumTileConfigs = 0;  // there are no such tables since gfx9
  config->NumMacroTileConfigs = 0;
  config->GbAddrConfig = driver.model().gb_addr_config;
  config->NumBanks = 0;
  config->NumRanks = 0;
}

}  // namespace softgpu
