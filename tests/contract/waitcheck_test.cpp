// Missing waits in hand-written kernels, each beside its twin that waits enough; and in
// compiled ones, of which every wait is weakened once.
#include "contract/waitcheck.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "contract/admission.h"
#include "contract/catalogue.h"
#include "contract/inspect.h"
#include "contract/render.h"
#include "contract/validate.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi::contract {
namespace {

using test::Loaded;

WaitReport Check(Loaded& loaded, const std::string& kernel = "k") {
  const auto& analysis = loaded.Kernel(kernel);
  return CheckWaits(analysis.isa(), CodeIn(loaded.object()), analysis.kernel().entry_vaddr);
}

struct Case {
  const char* name;
  const char* processor;
  uint32_t wave;
  const char* body;   // WAIT: where the wait goes
  const char* weak;   // does not do
  const char* right;  // does
  const char* found;  // what is said of the weak one, without places
};

constexpr Case kCases[] = {
    {"none", "gfx90a", 64, "global_load_dword v4, v[0:1], off\nWAIT\nv_mov_b32 v5, v4\n", "",
     "s_waitcnt vmcnt(0)", "v_mov_b32 reads v4"},
    {"too weak by one", "gfx90a", 64,
     "global_load_dword v4, v[0:1], off\nglobal_load_dword v5, v[0:1], off\nWAIT\n"
     "v_mov_b32 v6, v4\n",
     "s_waitcnt vmcnt(2)", "s_waitcnt vmcnt(1)", "v_mov_b32 reads v4"},
    {"stores count on gfx9", "gfx90a", 64,
     "global_load_dword v4, v[0:1], off\nglobal_store_dword v[0:1], v2, off\nWAIT\n"
     "v_mov_b32 v6, v4\n",
     "s_waitcnt vmcnt(2)", "s_waitcnt vmcnt(1)", "v_mov_b32 reads v4"},
    {"stores count apart", "gfx1030", 32,
     "global_load_dword v4, v[0:1], off\nglobal_store_dword v[0:1], v2, off\nWAIT\n"
     "v_mov_b32 v6, v4\n",
     "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "v_mov_b32 reads v4"},
    {"overwritten", "gfx90a", 64, "global_load_dword v4, v[0:1], off\nWAIT\nv_mov_b32 v4, 0\n",
     "s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0)", "v_mov_b32 writes v4"},
    {"one path only", "gfx90a", 64,
     "global_load_dword v4, v[0:1], off\ns_cbranch_scc0 0f\ns_waitcnt vmcnt(0)\ns_branch 1f\n"
     "0: WAIT\n1: v_mov_b32 v5, v4\n",
     "", "s_waitcnt vmcnt(0)", "v_mov_b32 reads v4"},
    {"loop-carried", "gfx1100", 32,
     "v_mov_b32 v4, 0\n0: WAIT\nv_add_nc_u32 v5, v4, v5\nglobal_load_b32 v4, v[0:1], off\n"
     "s_sub_u32 s4, s4, 1\ns_cbranch_scc0 0b\n",
     "", "s_waitcnt vmcnt(0)", "v_add_nc_u32 reads v4"},
    {"loop-carried by one", "gfx90a", 64,
     "v_mov_b32 v4, 0\nv_mov_b32 v6, 0\n0: global_load_dword v6, v[0:1], off\nWAIT\n"
     "v_add_u32 v5, v4, v5\nglobal_load_dword v4, v[0:1], off\ns_waitcnt vmcnt(1)\n"
     "v_mov_b32 v7, v6\ns_sub_u32 s4, s4, 1\ns_cbranch_scc0 0b\n",
     "s_waitcnt vmcnt(2)", "s_waitcnt vmcnt(1)", "v_add_u32 reads v4"},
    {"scalar loads in any order", "gfx90a", 64,
     "s_load_dword s4, s[0:1], 0x0\ns_load_dword s5, s[0:1], 0x4\nWAIT\ns_mov_b32 s6, s4\n",
     "s_waitcnt lgkmcnt(1)", "s_waitcnt lgkmcnt(0)", "s_mov_b32 reads s4"},
    {"LDS in order", "gfx90a", 64,
     "ds_read_b32 v4, v0\nds_read_b32 v5, v0\nWAIT\nv_mov_b32 v6, v4\n", "s_waitcnt lgkmcnt(2)",
     "s_waitcnt lgkmcnt(1)", "v_mov_b32 reads v4"},
    {"LDS and scalar loads", "gfx90a", 64,
     "ds_read_b32 v4, v0\ns_load_dword s5, s[0:1], 0x4\nWAIT\nv_mov_b32 v6, v4\n",
     "s_waitcnt lgkmcnt(1)", "s_waitcnt lgkmcnt(0)", "v_mov_b32 reads v4"},
    {"LDS apart from scalar loads", "gfx1201", 32,
     "ds_load_b32 v4, v0\ns_load_b32 s5, s[0:1], 0x4\nWAIT\nv_mov_b32 v6, v4\n", "s_wait_kmcnt 0x0",
     "s_wait_dscnt 0x0", "v_mov_b32 reads v4"},
    {"flat counts in both", "gfx90a", 64, "flat_load_dword v4, v[0:1]\nWAIT\nv_mov_b32 v6, v4\n",
     "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0) lgkmcnt(0)", "v_mov_b32 reads v4"},
    {"flat in any order on gfx9", "gfx90a", 64,
     "global_load_dword v4, v[0:1], off\nflat_load_dword v5, v[0:1]\nWAIT\nv_mov_b32 v6, v4\n",
     "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "v_mov_b32 reads v4"},
    {"an address", "gfx1030", 32,
     "s_load_dwordx2 s[4:5], s[0:1], 0x0\nWAIT\nglobal_load_dword v4, v0, s[4:5]\n",
     "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)", "global_load_dword reads s4"},
    {"data of a store", "gfx1201", 32,
     "global_load_b32 v4, v[0:1], off\nWAIT\nglobal_store_b32 v[0:1], v4, off\n",
     "s_wait_storecnt 0x0", "s_wait_loadcnt 0x0", "global_store_b32 reads v4"},
    {"a sample", "gfx1201", 32,
     "image_sample v4, v0, s[0:7], s[8:11] dmask:0x1 dim:SQ_RSRC_IMG_1D\nWAIT\nv_mov_b32 v5, v4\n",
     "s_wait_loadcnt 0x0", "s_wait_samplecnt 0x0", "v_mov_b32 reads v4"},
    {"an atomic that returns", "gfx1030", 32,
     "global_atomic_add v4, v[0:1], v2, off glc\nWAIT\nv_mov_b32 v6, v4\n",
     "s_waitcnt_vscnt null, 0x0", "s_waitcnt vmcnt(0)", "v_mov_b32 reads v4"},
    {"a wait that names a register", "gfx1030", 32,
     "s_load_dword s4, s[0:1], 0x0\nWAIT\ns_mov_b32 s6, s4\n", "s_waitcnt_lgkmcnt s1, 0x0",
     "s_waitcnt_lgkmcnt null, 0x0", "s_mov_b32 reads s4"},
    {"the clock", "gfx90a", 64, "s_memtime s[4:5]\nWAIT\ns_mov_b32 s6, s4\n", "s_waitcnt vmcnt(0)",
     "s_waitcnt lgkmcnt(0)", "s_mov_b32 reads s4"},
    {"an export", "gfx1030", 32, "exp mrt0 v4, v4, v4, v4 done\nWAIT\nv_mov_b32 v4, 0\n",
     "s_waitcnt vmcnt(0)", "s_waitcnt expcnt(0)", "v_mov_b32 writes v4"},
};

TEST(WaitCheck, FindsWhatIsMissingAndNothingElse) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    for (const bool weak : {true, false}) {
      const std::string body =
          absl::StrReplaceAll(c.body, {{"WAIT", weak ? c.weak : c.right}}) + "s_endpgm\n";
      Loaded loaded(test::AssembleObject(c.processor, c.wave, {{.body = body}}));
      const WaitReport report = Check(loaded);
      EXPECT_TRUE(report.complete);
      if (!weak) {
        for (const WaitFinding& f : report.findings) {
          ADD_FAILURE() << DescribeWait(f, loaded.Kernel().isa(), CodeIn(loaded.object()));
        }
        continue;
      }
      ASSERT_EQ(report.findings.size(), 1u);
      const std::string said =
          DescribeWait(report.findings[0], loaded.Kernel().isa(), CodeIn(loaded.object()));
      EXPECT_EQ(said.rfind(c.found, 0), 0u) << said;
    }
  }
}

// A counter that is full holds the next operation up: the oldest has returned.
TEST(WaitCheck, CountersAreFullAtTheirMaximum) {
  for (const int loads : {14, 15}) {
    std::string body;
    for (int n = 0; n <= loads; ++n) body += "ds_read_b32 v" + std::to_string(4 + n) + ", v0\n";
    Loaded loaded(test::AssembleObject(
        "gfx90a", 64, {{.body = body + "v_mov_b32 v1, v4\ns_endpgm\n", .vgprs = 32}}));
    EXPECT_EQ(Check(loaded).findings.empty(), loads == 15) << loads;
  }
}

TEST(WaitCheck, OfOneKindResultsLandInOrder) {
  Loaded same(test::AssembleObject(
      "gfx1030", 32,
      {{.body = "global_load_dword v4, v[0:1], off\nglobal_load_dword v4, v[0:1], off\n"
                "s_endpgm\n"}}));
  EXPECT_TRUE(Check(same).findings.empty());
  Loaded other(test::AssembleObject(
      "gfx1030", 32,
      {{.body = "global_load_dword v4, v[0:1], off\nds_read_b32 v4, v0\ns_endpgm\n"}}));
  EXPECT_EQ(Check(other).findings.size(), 1u);
}

TEST(WaitCheck, SaysWhatItDidNotFollow) {
  Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = "s_setpc_b64 s[4:5]\ns_endpgm\n"}}));
  EXPECT_FALSE(Check(loaded).complete);
}

// A wait that the original lacks is the application's: its kernel is patched all the
// same, and the record says so, once for each place.
TEST(WaitCheck, TheApplicationsOwnAreReported) {
  const std::string body =
      "s_nop 0\nglobal_load_dword v4, v[0:1], off\nv_mov_b32 v5, v4\ns_endpgm\n";
  for (const v1::Placement placement : {v1::CLONE, v1::TRAMPOLINE}) {
    SCOPED_TRACE(v1::Placement_Name(placement));
    const auto bytes = test::AssembleObject("gfx90a", 64, {{.body = body}});
    v1::Attachment a;
    a.set_id("a1");
    a.mutable_spec()->set_kernel_glob("*");
    a.mutable_spec()->set_sites("*");
    a.mutable_spec()->set_probe("count-waves");
    a.mutable_spec()->set_placement(placement);
    a.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
    const auto rewriter = patch::MakeTrampolineRewriter();
    const Admission admission = Admit(bytes, {a}, DefaultPolicy(), *rewriter);
    EXPECT_FALSE(admission.patched.empty());
    ASSERT_EQ(admission.record.application_missing_waits_size(), 1);
    const v1::MissingWait& wait = admission.record.application_missing_waits(0);
    EXPECT_EQ(wait.kernel(), "k");
    EXPECT_EQ(wait.kernel_offset(), 12u);
    EXPECT_EQ(wait.producer_offset(), 4u);
    EXPECT_EQ(wait.register_name(), "v4");
    const std::string text = RenderRecord(admission.record, true, {});
    EXPECT_NE(text.find("the application itself lacks waits: k+0xc"), text.npos) << text;
    const auto patched = InspectWaits(admission.patched, "");
    ASSERT_TRUE(patched.ok()) << patched.status();
    EXPECT_EQ(patched->kernels(0).missing_size(), 1);
  }
}

// One that only the patched code lacks is the engine's, and nothing is shipped.
TEST(WaitCheck, TheEnginesOwnRefuseTheImage) {
  for (const auto placement : {patch::Placement::kClone, patch::Placement::kTrampoline}) {
    Loaded loaded(test::AssembleObject("gfx90a", 64,
                                       {{.body = "s_nop 0\ns_nop 1\ns_endpgm\n", .vgprs = 16}}));
    const auto& kernel = loaded.Kernel();
    const auto rewriter = patch::MakeTrampolineRewriter();
    auto planned = rewriter->Plan(kernel, 1,
                                  {.probe = patch::Probe::kCountWaves,
                                   .max_sgpr_delta = 32,
                                   .max_vgpr_delta = 32,
                                   .placement = placement});
    ASSERT_TRUE(std::holds_alternative<patch::SitePlan>(planned));
    patch::SitePlan plan = std::get<patch::SitePlan>(planned);
    for (const bool waits : {true, false}) {
      std::vector<uint8_t> code = plan.sequence.get();
      const auto more =
          kernel.isa().Assemble(std::string("global_load_dword v3, v[0:1], off\n") +
                                (waits ? "s_waitcnt vmcnt(0)\n" : "") + "v_mov_b32 v4, v3");
      ASSERT_TRUE(more.ok()) << more.status();
      code.insert(code.end(), more->begin(), more->end());
      patch::SitePlan changed = plan;
      changed.sequence = patch::SharedCode(code);
      const auto result = rewriter->Emit(loaded.object(), {&kernel}, {changed});
      ASSERT_TRUE(result.ok()) << result.status();
      const auto report = ValidateImage(loaded.object(), {&kernel}, {changed}, *result);
      size_t found = 0;
      for (const ValidationFinding& f : report.findings) {
        found += f.constraint == id::kMissingWait;
        if (f.constraint == id::kMissingWait) {
          EXPECT_NE(f.what.find("v_mov_b32 reads v3"), f.what.npos) << f.what;
        }
      }
      EXPECT_EQ(found, waits ? 0u : 1u);
    }
  }
}

// Kernels as the compiler makes them have no finding; with any one wait removed they
// have, but for waits that nothing needs.
class Compiled : public testing::TestWithParam<const char*> {};
TEST_P(Compiled, EachWaitIsMissed) {
  size_t waits = 0, missed = 0, kernels = 0;
  for (const char* stem : {"kernels", "kernels0"}) {
    const auto bytes = softgpu::ReadBinaryFile(std::string(SOFTGPU_KERNEL_DIR) + "/" + stem + "-" +
                                               GetParam() + ".co");
    ASSERT_FALSE(bytes.empty());
    Loaded loaded(bytes);
    for (const patch::KernelAnalysis* kernel : loaded.All()) {
      const WaitReport report =
          CheckWaits(kernel->isa(), CodeIn(loaded.object()), kernel->kernel().entry_vaddr);
      for (const WaitFinding& f : report.findings) {
        ADD_FAILURE() << kernel->kernel().name << ": "
                      << DescribeWait(f, kernel->isa(), CodeIn(loaded.object()));
      }
      ++kernels;
      for (const auto& in : kernel->instructions()) {
        if (!in.waitcnt) continue;
        // Memory operations without a result are waited for by the memory model alone.
        if (in.opcode.find("vscnt") != in.opcode.npos) continue;
        if (in.opcode.find("storecnt") != in.opcode.npos) continue;
        if (in.opcode.find("depctr") != in.opcode.npos) continue;
        if (in.opcode == "s_wait_alu") continue;
        auto changed = bytes;
        const auto at = loaded.object().VaddrToOffset(kernel->kernel().entry_vaddr + in.offset);
        static constexpr uint8_t kNop[] = {0x00, 0x00, 0x80, 0xbf};
        std::copy(std::begin(kNop), std::end(kNop), changed.begin() + static_cast<ptrdiff_t>(*at));
        const auto object = patch::CodeObject::Parse(changed);
        ASSERT_TRUE(object.ok());
        ++waits;
        missed += !CheckWaits(kernel->isa(), CodeIn(*object), kernel->kernel().entry_vaddr)
                       .findings.empty();
      }
    }
  }
  std::printf("%s: %zu kernels, %zu waits, %zu missed when removed\n", GetParam(), kernels, waits,
              missed);
  EXPECT_GT(waits, 100u);
  // The others are for order: before barriers, calls, returns and the end, and for
  // stores of which nothing is read.
  EXPECT_GE(missed * 100, waits * 60);
}
INSTANTIATE_TEST_SUITE_P(Processors, Compiled,
                         testing::Values("gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100",
                                         "gfx1201"));

}  // namespace
}  // namespace rjdbi::contract
