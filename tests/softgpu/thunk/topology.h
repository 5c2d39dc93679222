// What the driver reports about the machine: node 0 is the CPU, node 1 the GPU.
#ifndef TESTS_SOFTGPU_THUNK_TOPOLOGY_H_
#define TESTS_SOFTGPU_THUNK_TOPOLOGY_H_

#include <hsakmt.h>

#include "tests/softgpu/thunk/driver.h"

namespace softgpu {

inline constexpr uint32_t kNodes = 2;

void DescribeNode(const Driver& driver, uint32_t node, HsaNodeProperties* properties);
// Fills up to count entries, as many as DescribeNode announces.
void DescribeMemory(const Driver& driver, uint32_t node, uint32_t count,
                    HsaMemoryProperties* properties);
void DescribeCaches(const Driver& driver, uint32_t node, uint32_t count,
                    HsaCacheProperties* properties);
void DescribeLinks(uint32_t node, uint32_t count, HsaIoLinkProperties* properties);
void DescribeTiles(const Driver& driver, HsaGpuTileConfig* config);

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_TOPOLOGY_H_
