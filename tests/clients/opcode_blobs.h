// Match and descriptor tables of hardware decode profilers, written from what the
// published description says of the layout and of the armed sets: no bytes of the
// originals were at hand. What it leaves open is chosen here, and marked.
#ifndef TESTS_CLIENTS_OPCODE_BLOBS_H_
#define TESTS_CLIENTS_OPCODE_BLOBS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rjdbi::tests {

struct ArmedOpcode {
  uint32_t opcode = 0, mask = 0xff;
  bool operator==(const ArmedOpcode&) const = default;
};

struct EngineTables {
  std::string engine;  // "cayman act"
  std::vector<ArmedOpcode> armed;
  size_t stated = 0;               // how many are armed, as the description counts them
  std::string match, descriptors;  // the blobs
};

// All of which the description lists the armed set.
const std::vector<EngineTables>& ListedEngines();
const EngineTables& Engine(const std::string& name);

// Little-endian, into a blob.
void PutWord(std::string& blob, size_t offset, uint32_t value);

}  // namespace rjdbi::tests

#endif  // TESTS_CLIENTS_OPCODE_BLOBS_H_
