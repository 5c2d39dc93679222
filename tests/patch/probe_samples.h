// The compiled examples of probe.cmake, and bodies from a few lines of assembly.
#ifndef TESTS_PATCH_PROBE_SAMPLES_H_
#define TESTS_PATCH_PROBE_SAMPLES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "patch/probe/probe_body.h"

namespace rjdbi::test {

inline constexpr const char* kProbeObjects[] = {
    "gfx900.hip.19",  "gfx90a.hip.19",  "gfx942.hip.19",  "gfx1010.hip.19",
    "gfx1030.hip.19", "gfx1100.hip.19", "gfx1201.hip.19", "gfx90a.cl.19",
    "gfx90a.hip.15",  "gfx1030.hip.15", "gfx1030.cl.15"};

inline std::vector<uint8_t> ReadProbeObject(const std::string& name) {
  std::ifstream file(std::string(RJDBI_PROBE_OBJECTS) + "/" + name + ".o", std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(bytes.empty()) << name;
  return bytes;
}

inline std::unique_ptr<patch::Isa> MakeIsa(const std::string& processor) {
  patch::TargetId target;
  target.processor = processor;
  auto isa = patch::Isa::Create(target, processor.starts_with("gfx9") ? 64 : 32);
  EXPECT_TRUE(isa.ok()) << isa.status();
  return isa.ok() ? *std::move(isa) : nullptr;
}

// The body that these lines are, relocations aside.
inline patch::BodyReading ReadLines(const std::string& lines, patch::Isa& isa) {
  const auto code = isa.Assemble(lines);
  EXPECT_TRUE(code.ok()) << code.status();
  patch::DeviceFunction function;
  function.name = "probe";
  if (code.ok()) function.code = *code;
  return patch::ReadBody(function, isa);
}

inline std::string Disassemble(const std::vector<uint8_t>& code, patch::Isa& isa) {
  std::string out;
  for (uint64_t at = 0; at < code.size();) {
    const auto in = isa.Decode(code, at);
    if (!in) return out + "undecodable\n";
    out += isa.Print(code, at) + "\n";
    at += in->size;
  }
  return out;
}

}  // namespace rjdbi::test

#endif  // TESTS_PATCH_PROBE_SAMPLES_H_
