#include "tests/clients/opcode_blobs.h"

#include <cstdlib>

namespace rjdbi::tests {
namespace {

using Opcodes = std::vector<uint32_t>;

// The description says "0xa0 to 0xb2", which would be 19 opcodes. With them no set would
// have as many as it counts (and its slot numbers for 0xe2, 0x1e3 and 0x30 prove the
// counts): 12 are armed on most engines, 13 on one. Which, it does not say: chosen here,
// with both ends and 0xa1, which it names.
const Opcodes kControl = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa8, 0xa9, 0xaa, 0xb0, 0xb1, 0xb2};
const Opcodes kControlDve = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6,
                             0xa8, 0xa9, 0xaa, 0xb0, 0xb1, 0xb2};
// "0x41 to 0x68" leaves 24 of 40, without 0x49, which is listed apart. 0x43, 0x44, 0x46 and
// 0x47 are among them: the difference to another engine, which has them, leaves them out.
const Opcodes kMoveBand = {0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x4a, 0x4b, 0x4c, 0x4d,
                           0x4e, 0x4f, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x5e, 0x64, 0x65, 0x68};

std::vector<ArmedOpcode> Set(const std::vector<Opcodes>& parts) {
  std::vector<ArmedOpcode> armed;
  for (const Opcodes& part : parts) {
    for (const uint32_t opcode : part) armed.push_back({opcode, opcode > 0xff ? 0x1ffu : 0xffu});
  }
  armed.push_back({0, 0});
  return armed;
}

bool Control(const ArmedOpcode& armed) {
  return armed.mask == 0 || armed.opcode == 0x9f || (armed.opcode >= 0xa0 && armed.opcode <= 0xb2);
}

std::string MatchTable(const std::vector<ArmedOpcode>& armed) {
  std::string blob(0x400, '\0');
  for (size_t i = 0; i < armed.size(); ++i) {
    PutWord(blob, i * 16, armed[i].opcode);
    PutWord(blob, i * 16 + 4, armed[i].mask);
    PutWord(blob, i * 16 + 8, 1);
  }
  return blob;
}

// A record whose first `words` of cfg0, cfg1 and descr are not zero, and its class.
void PutRecord(std::string& blob, size_t record, size_t words, uint32_t class_word) {
  constexpr uint32_t kContent[] = {0x00000201, 0x26000010, 0x6f636160, 0x6d6c6766, 0x62};
  for (size_t i = 0; i < words; ++i) PutWord(blob, record * 128 + i * 4, kContent[i]);
  PutWord(blob, record * 128 + 0x14, class_word);
}

// The description's samples: record 0 and 2, and 150 words that are not zero.
std::string CaymanDescriptors(const std::vector<ArmedOpcode>& armed) {
  const std::string rec2(
      "\x05\x02\x00\x02\x10\x00\x30\x26"
      "\x60\x61\x63\x00\x66\x67\x6c\x6d\x62\x6f\x6b\x00\x00\x10\x00\x00",
      24);
  std::string blob(0x2000, '\0');
  size_t engines_own = 0;
  for (size_t i = 0; i < armed.size(); ++i) {
    if (i == 0) {
      PutRecord(blob, i, 5, 0x1000);
    } else if (i == 2) {
      blob.replace(2 * 128, rec2.size(), rec2);
    } else if (Control(armed[i])) {
      PutRecord(blob, i, 0, 0x1001);
    } else {
      PutRecord(blob, i, ++engines_own <= 29 ? 3 : 2, 0x1002);
    }
  }
  return blob;
}

// Of the later generation: bare classes; 68 words that are not zero on the first engine.
std::string MarianaDescriptors(const std::vector<ArmedOpcode>& armed) {
  std::string blob(0x2000, '\0');
  size_t engines_own = 0;
  for (size_t i = 0; i < armed.size(); ++i) {
    const ArmedOpcode& a = armed[i];
    if (a.opcode == 0x30) {
      PutRecord(blob, i, 3, 0x19);
      PutWord(blob, i * 128 + 4, 0x10);
      blob[i * 128 + 0x12] = 1;
    } else if (Control(a)) {
      const bool idle = a.mask == 0 || a.opcode == 0x9f;
      PutRecord(blob, i, 0, idle ? 0x19 : i == 0 ? 0x300 : 0x03);
    } else {
      PutRecord(blob, i, ++engines_own <= 10 ? 4 : 3, 0x25);
    }
  }
  return blob;
}

std::vector<EngineTables> MakeAll() {
  std::vector<EngineTables> all;
  const auto cayman =
      Set({{0x01, 0x06, 0x02, 0x07, 0x03}, kControl, {0x21, 0x22, 0x23, 0x24, 0x49}, kMoveBand});
  for (const char* engine : {"act", "dve", "pool", "pe"}) {
    all.push_back({std::string("cayman ") + engine, cayman, 47, MatchTable(cayman),
                   CaymanDescriptors(cayman)});
  }
  const std::vector<EngineTables> mariana = {
      {"act",
       Set({kControl,
            {0x21, 0x22, 0x23, 0x24, 0x25},
            {0x43, 0x44, 0x46, 0x47},
            {0x77, 0x78, 0x9f}}),
       25, "", ""},
      {"dve",
       Set({kControlDve,
            {0x41, 0x4d, 0x51, 0x42, 0x52, 0x83, 0x84, 0x43, 0x93, 0x53, 0x45, 0x46,
             0x47, 0x48, 0x4e, 0x5e, 0x64, 0x8e, 0x65, 0x6a, 0x6b, 0x70, 0x71, 0x72},
            {0x77, 0x78},
            {0xe0, 0xe1, 0xe2, 0xe3},
            {0x1e3},
            {0x98},
            {0x30},
            {0x9f}}),
       48, "", ""},
      {"pe", Set({kControl, {0x01, 0x06, 0x02, 0x07, 0x03, 0x09, 0x0a}, {0xe4}, {0x9f}}), 22, "",
       ""},
      {"pool", Set({}), 1, "", ""}};
  for (const char* generation : {"mariana", "mariana plus", "maverick"}) {
    for (EngineTables e : mariana) {
      // Of maverick only pool is listed: the same as mariana's.
      if (std::string(generation) == "maverick" && e.engine != "pool") continue;
      e.match = MatchTable(e.armed);
      e.descriptors = MarianaDescriptors(e.armed);
      e.engine = std::string(generation) + " " + e.engine;
      all.push_back(e);
    }
  }
  return all;
}

}  // namespace

const std::vector<EngineTables>& ListedEngines() {
  static const std::vector<EngineTables> all = MakeAll();
  return all;
}

const EngineTables& Engine(const std::string& name) {
  for (const EngineTables& engine : ListedEngines()) {
    if (engine.engine == name) return engine;
  }
  std::abort();  // a slip in a test
}

void PutWord(std::string& blob, size_t offset, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) blob[offset + i] = static_cast<char>(value >> (8 * i));
}

}  // namespace rjdbi::tests
