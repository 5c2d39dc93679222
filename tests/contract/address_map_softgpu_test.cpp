// The address map against program counters that were executed: an instruction
// runs as often at its new place as it did in the original, and nothing runs
// that the map does not know.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "contract/address_map.h"
#include "contract/admission.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi::contract {
namespace {

constexpr char kSource[] = R"(
constant int table[64] = {5, 3, 8, 1, 9, 2, 7, 4};
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k(global const int* in, global int* out) {
  local int tile[64];
  uint lid = __builtin_amdgcn_workitem_id_x();
  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + lid;
  int sum = in[i] * 3 + in[(i + 17) & 127];
  for (int n = 0; n < (in[i] & 7); ++n) sum += table[(in[(i + n) & 127] + n) & 63];
  tile[lid] = sum;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  if (sum & 1) sum ^= tile[(lid * 5 + 1) & 63];
  out[i] = sum;
}
)";
constexpr uint32_t kWords = 128;

using Counts = std::map<uint64_t, softgpu::PcCount>;  // by vaddr

void RunKernel(const std::string& target, const std::vector<uint8_t>& image,
               softgpu::RangeMemory& memory, std::vector<uint32_t>& result, Counts& counts) {
  std::string error;
  const auto object = softgpu::LoadedObject::Load(image, &memory, &error);
  const auto machine = softgpu::Machine::Create(target, 3, &memory, &error);
  ASSERT_TRUE(object && machine) << error;
  softgpu::DeviceBuffer<uint32_t> in(memory, kWords), out(memory, kWords);
  for (uint32_t i = 0; i < kWords; ++i) in[i] = (i * 2654435761u) >> 20;
  softgpu::KernelArgs args;
  args.Add(in.data()).Add(out.data());
  softgpu::LaunchShape shape;
  shape.grid[0] = kWords;
  shape.workgroup[0] = 64;
  const auto fault = softgpu::Launch(*machine, memory, object->Descriptor("k"), args, shape);
  ASSERT_EQ(fault.kind, softgpu::Fault::Kind::kNone) << fault.what;
  result = out.contents();
  for (const auto& [pc, count] : machine->Counts()) counts[pc - object->bias()] = count;
}

using Variant = std::tuple<std::string, v1::Placement>;
class ExecutedMap : public testing::TestWithParam<Variant> {};

TEST_P(ExecutedMap, AccountsForEveryProgramCounter) {
  const auto& [target, placement] = GetParam();
  const std::vector<uint8_t> original = test::CompileOpenCl(target, kSource);
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("*");
  attachment.mutable_spec()->set_probe("count-waves");
  attachment.mutable_spec()->set_placement(placement);
  attachment.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  auto rewriter = patch::MakeTrampolineRewriter();
  Admission admission = Admit(original, {attachment}, DefaultPolicy(), *rewriter);
  ASSERT_FALSE(admission.patched.empty());
  const auto map = AddressMap::Open(admission.patched);
  ASSERT_TRUE(map.ok()) << map.status();

  softgpu::RangeMemory memory;
  std::vector<uint32_t> expected, result;
  Counts before, after;
  RunKernel(target, original, memory, expected, before);
  softgpu::DeviceBuffer<uint64_t> counters(memory, admission.record.counter_count());
  std::vector<uint8_t> image = admission.patched;
  for (const auto& fixup : admission.fixups) {
    const uint64_t address = reinterpret_cast<uint64_t>(counters.data()) + fixup.addend;
    const auto word = static_cast<uint32_t>(fixup.high_half ? address >> 32 : address);
    std::memcpy(image.data() + fixup.offset, &word, sizeof word);
  }
  RunKernel(target, image, memory, result, after);
  if (HasFatalFailure()) return;
  EXPECT_EQ(result, expected);

  size_t checked = 0;
  for (const auto& [pc, count] : before) {
    const auto answers = map->Resolve(absl::StrCat("0x", absl::Hex(pc)));
    ASSERT_TRUE(answers.ok());
    const uint64_t there = answers->front().runs_at();
    ASSERT_NE(there, 0u) << pc;
    EXPECT_EQ(after[there].waves, count.waves) << "original " << pc << ", now " << there;
    ++checked;
  }
  EXPECT_GT(checked, 40u);
  size_t injected = 0;
  for (const auto& [pc, count] : after) {
    if (count.waves == 0) continue;
    const auto answers = map->Resolve(absl::StrCat("0x", absl::Hex(pc)));
    ASSERT_TRUE(answers.ok());
    const v1::MappedPc& answer = answers->front();
    ASSERT_NE(answer.kind(), v1::CODE_PIECE_KIND_UNSPECIFIED) << pc << ": " << answer.note();
    if (answer.kind() == v1::APPLICATION_CODE) {
      EXPECT_EQ(before.count(answer.original_vaddr()), 1u) << pc;
    } else {
      ++injected;
    }
  }
  EXPECT_GT(injected, 40u);
}

INSTANTIATE_TEST_SUITE_P(Generations, ExecutedMap,
                         testing::Combine(testing::Values("gfx90a", "gfx942", "gfx1030", "gfx1100",
                                                          "gfx1201"),
                                          testing::Values(v1::CLONE, v1::TRAMPOLINE)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  v1::Placement_Name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace rjdbi::contract
