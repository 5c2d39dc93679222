// Holds the tables of generations/ against LLVM's own model: its code
// generator reports the encoded granules and the occupancy of kernels that use
// a given number of registers, and its assembler knows what exists.
#include "patch/isa/generation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "patch/isa/isa.h"

namespace rjdbi::patch {
namespace {

const char* const kProcessors[] = {"gfx900",  "gfx906",  "gfx908",  "gfx90a",  "gfx942",
                                   "gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031",
                                   "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
                                   "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150",
                                   "gfx1151", "gfx1200", "gfx1201", "gfx950",  "gfx1250"};

// Those that this LLVM knows. WhatNeedsANewerLlvm has the others.
std::vector<const char*> Known(bool known) {
  std::vector<const char*> out;
  for (const char* processor : kProcessors) {
    const auto row = FindGeneration(processor);
    if (row.ok() && ((*row)->min_llvm <= LlvmVersion()) == known) out.push_back(processor);
  }
  return out;
}

struct Report {  // one kernel, as LLVM's code generator comments it
  long vgpr_blocks = -1, sgpr_blocks = -1, occupancy = -1;
};

class GenerationTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto found = FindGeneration(GetParam());
    ASSERT_TRUE(found.ok()) << found.status();
    row_ = *found;
  }

  std::vector<uint32_t> WaveSizes() const {
    std::vector<uint32_t> sizes;
    if (row_->wave32) sizes.push_back(32);
    if (row_->wave64) sizes.push_back(64);
    return sizes;
  }

  uint32_t AnyWave() const { return WaveSizes().back(); }

  std::string Compile(const std::string& ir, uint32_t wave) {
    const std::string path =
        testing::TempDir() + "generation_" + GetParam() + std::to_string(getpid()) + ".ll";
    std::ofstream(path) << ir;
    std::string command = std::string(RJDBI_LLC) +
                          " -mtriple=amdgcn-amd-amdhsa -mcpu=" + GetParam() + " -o - " + path;
    if (row_->major > 9) command += " -mattr=+wavefrontsize" + std::to_string(wave);
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string out;
    char buffer[1 << 16];
    while (size_t n = std::fread(buffer, 1, sizeof(buffer), pipe.get())) out.append(buffer, n);
    std::remove(path.c_str());
    return out;
  }

  // A kernel that touches one register, for groups of a single wave: only the
  // register file limits it.
  static std::string Kernel(const std::string& name, const std::string& clobber, uint32_t wave) {
    return "define amdgpu_kernel void @" + name + "() \"amdgpu-flat-work-group-size\"=\"1," +
           std::to_string(wave) + "\" { call void asm sideeffect \"\", \"~{" + clobber +
           "}\"()\n ret void }\n";
  }

  static std::map<std::string, Report> Reports(const std::string& text) {
    std::map<std::string, Report> out;
    std::string name, line;
    std::istringstream stream(text);
    auto number = [&](const char* key, long& field) {
      if (line.rfind(key, 0) == 0) field = std::stol(line.substr(std::string(key).size()));
    };
    while (std::getline(stream, line)) {
      const size_t at = line.find("; @");
      if (at != std::string::npos) name = line.substr(at + 3);
      Report& report = out[name];
      number("; VGPRBlocks: ", report.vgpr_blocks);
      number("; SGPRBlocks: ", report.sgpr_blocks);
      number("; Occupancy: ", report.occupancy);
    }
    return out;
  }

  const Generation* row_ = nullptr;
};

long RoundUp(long value, long granule) { return (value + granule - 1) / granule * granule; }

TEST_P(GenerationTest, VectorRegisters) {
  for (uint32_t wave : WaveSizes()) {
    std::string ir;
    std::vector<long> counts;
    for (long n = 1; n <= row_->max_arch_vgprs; n += n % 4 == 1 ? 3 : 1) counts.push_back(n);
    for (long n : counts) {
      ir += Kernel("k" + std::to_string(n), "v" + std::to_string(n - 1), wave);
    }
    const auto reports = Reports(Compile(ir, wave));
    const bool w32 = wave == 32;
    const long encoding = w32 ? row_->vgpr_encoding_granule_w32 : row_->vgpr_encoding_granule_w64;
    const long granule = w32 ? row_->vgpr_granule_w32 : row_->vgpr_granule_w64;
    const long total = w32 ? row_->vgprs_per_simd_w32 : row_->vgprs_per_simd_w64;
    for (long n : counts) {
      SCOPED_TRACE("wave" + std::to_string(wave) + ", " + std::to_string(n) + " VGPRs");
      const auto at = reports.find("k" + std::to_string(n));
      ASSERT_NE(at, reports.end());
      EXPECT_EQ(at->second.vgpr_blocks, RoundUp(n, encoding) / encoding - 1);
      const long waves = total / RoundUp(n, granule);
      EXPECT_EQ(at->second.occupancy, std::min<long>(waves, row_->max_waves_per_simd));
    }
  }
}

TEST_P(GenerationTest, ScalarRegisters) {
  if (row_->sgprs_allocated) {
    std::string ir;
    for (long n = 1; n <= row_->addressable_sgprs; ++n) {
      ir += Kernel("k" + std::to_string(n), "s" + std::to_string(n - 1), 64);
    }
    const auto reports = Reports(Compile(ir, 64));
    for (long n = 1; n <= row_->addressable_sgprs; ++n) {
      // LLVM adds what this kernel needs of the tail (at least nothing, at most
      // all of it) and encodes in halves of the granule.
      const auto at = reports.find("k" + std::to_string(n));
      ASSERT_NE(at, reports.end());
      const long half = row_->sgpr_granule / 2;
      EXPECT_GE(at->second.sgpr_blocks, RoundUp(n, half) / half - 1);
      EXPECT_LE(at->second.sgpr_blocks, RoundUp(n + row_->sgpr_tail, half) / half - 1);
    }
  } else {
    // The fixed file costs nothing, whatever is used of it.
    const auto reports = Reports(Compile(
        Kernel("k", "s" + std::to_string(row_->addressable_sgprs - 1), AnyWave()), AnyWave()));
    EXPECT_EQ(reports.at("k").occupancy, row_->max_waves_per_simd);
  }
}

TEST_P(GenerationTest, LocalMemory) {
  // Groups of 256: of four wave64 waves, one for each SIMD, or eight.
  for (long bytes : {8192L, 16384L, 32768L, 65536L}) {
    std::ostringstream ir;
    ir << "@lds = internal addrspace(3) global [" << bytes / 4 << " x i32] poison\n"
       << "define amdgpu_kernel void @k(i32 %i) \"amdgpu-flat-work-group-size\"=\"256,256\" {\n"
       << "  %p = getelementptr i32, ptr addrspace(3) @lds, i32 %i\n"
       << "  store volatile i32 0, ptr addrspace(3) %p\n  ret void\n}\n";
    const long waves = row_->lds_bytes / bytes * (256 / AnyWave()) / row_->simds;
    EXPECT_EQ(Reports(Compile(ir.str(), AnyWave())).at("k").occupancy,
              std::min<long>(waves, row_->max_waves_per_simd))
        << bytes;
  }
}

TEST_P(GenerationTest, EndPaddingIsWhatLlvmEmits) {
  const std::string text = Compile(Kernel("k", "v0", AnyWave()), AnyWave());
  long bytes = 0;
  std::string line;
  std::istringstream stream(text);
  unsigned long word = 0;
  while (std::getline(stream, line)) {
    long count = 0;
    if (std::sscanf(line.c_str(), " .fill %ld, 4, %lu", &count, &word) == 2) bytes = count * 4;
  }
  EXPECT_EQ(bytes, row_->end_padding_bytes);
  if (bytes == 0) return;
  TargetId target;
  target.processor = GetParam();
  auto isa = Isa::Create(target, AnyWave());
  ASSERT_TRUE(isa.ok()) << isa.status();
  const auto code = (*isa)->Assemble(row_->end_padding_opcode);
  ASSERT_TRUE(code.ok()) << code.status();
  ASSERT_EQ(code->size(), 4u);
  EXPECT_EQ(
      (*code)[0] | (*code)[1] << 8 | (*code)[2] << 16 | static_cast<unsigned>((*code)[3]) << 24,
      word);
}

TEST_P(GenerationTest, GetpcSignExtension) {
  const std::string text = Compile(
      "declare void @f()\n"
      "define amdgpu_kernel void @k() { call void @f()\n ret void }\n",
      AnyWave());
  ASSERT_TRUE(text.find("s_getpc_b64") != std::string::npos ||
              text.find("s_get_pc_i64") != std::string::npos);
  EXPECT_EQ(text.find("s_sext_i32_i16") != std::string::npos, row_->getpc_zero_extends);
}

TEST_P(GenerationTest, WhatTheAssemblerKnows) {
  for (uint32_t wave : WaveSizes()) {
    TargetId target;
    target.processor = GetParam();
    auto created = Isa::Create(target, wave);
    ASSERT_TRUE(created.ok()) << created.status();
    Isa& isa = **created;
    EXPECT_EQ(&isa.generation(), row_);
    auto assembles = [&](const std::string& text) { return isa.Assemble(text).ok(); };
    for (std::string_view guard :
         {row_->head_guard, row_->tail_guard, row_->mfma_head_guard, row_->far_jump_guard,
          row_->memory_guard, row_->end_padding_opcode}) {
      EXPECT_TRUE(assembles(std::string(guard))) << guard;
    }
    EXPECT_EQ(assembles("s_atomic_add s0, s[2:3], 0x0"), row_->scalar_atomics);
    EXPECT_TRUE(assembles(std::string(row_->global_atomic_add_u64) + " v0, v[2:3], s[0:1]"));
    const char* const load = row_->major >= 11 ? "global_load_b64" : "global_load_dwordx2";
    EXPECT_TRUE(assembles(std::string(load) + " v[2:3], v0, s[0:1]"));
    EXPECT_EQ(assembles(std::string(load) + " v[1:2], v0, s[0:1]"), !row_->vgpr64_alignment);
    const int last = row_->addressable_sgprs - 1;
    EXPECT_TRUE(assembles("s_mov_b32 s" + std::to_string(last) + ", 0"));
    EXPECT_FALSE(assembles("s_mov_b32 s" + std::to_string(last + 1) + ", 0"));
    EXPECT_EQ(assembles("v_accvgpr_read_b32 v0, a0"), !row_->mfma_head_guard.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, GenerationTest, testing::ValuesIn(Known(true)),
                         [](const auto& info) { return std::string(info.param); });

// Register offsets, preloading and register numbers, as LLVM's assembler has them.
TEST_P(GenerationTest, Encodings) {
  TargetId target;
  target.processor = GetParam();
  auto isa = Isa::Create(target, AnyWave());
  ASSERT_TRUE(isa.ok()) << isa.status();
  EXPECT_EQ((*isa)->Assemble("s_set_vgpr_msb 1").ok(), row_->vgpr_msb_mode.bits != 0);
  EXPECT_EQ((*isa)->Assemble("global_load_b32 v0, v1, s[0:1] scale_offset").ok(),
            row_->scaled_offsets);
  EXPECT_EQ((*isa)->Assemble("s_wait_xcnt 0x0").ok(), row_->memory_guard == "s_wait_xcnt 0x0");
  const std::string preload = Compile(
      "define amdgpu_kernel void @k(ptr inreg %p) { store volatile i32 1, ptr %p\n ret void }\n",
      AnyWave());
  // The code for other firmware fills 256 bytes: up to LLVM 19 a trap and 63 words, later
  // whatever it takes up to the alignment.
  const bool aligned = preload.find(".p2align\t8", preload.find("\nk:")) < preload.find("s_endpgm");
  const bool filled = preload.find(".fill 63, 4") != std::string::npos;
  EXPECT_EQ(aligned || filled, row_->preload_entry == 256);
  EXPECT_TRUE(row_->preload_entry == 0 || row_->preload_entry == 256);
}

TEST(Generation, WhatNeedsANewerLlvm) {
  const std::vector<const char*> unknown = Known(false);
  EXPECT_EQ(unknown.empty(), LlvmVersion() >= 22);
  for (const char* processor : unknown) {
    TargetId target;
    target.processor = processor;
    const auto isa = Isa::Create(target, 64);
    EXPECT_EQ(isa.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(isa.status().message().find("or newer; this is LLVM"), std::string::npos);
  }
}

TEST(Generation, UnknownProcessors) {
  EXPECT_EQ(FindGeneration("gfx803").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindGeneration("").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace rjdbi::patch
