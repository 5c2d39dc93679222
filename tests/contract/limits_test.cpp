// Modes, the reduction ladder, limits that are known late, and the sums that must
// come out whatever is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "contract/admission.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/natural_order.h"
#include "contract/reduction.h"
#include "contract/render.h"
#include "contract/text.h"
#include "patch/codeobject/appendix.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using test::AssembleObject;
using test::CompileOpenCl;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kSource[] = R"(
kernel void add(global int* a, global const int* b) {
  local int tile[256];
  int i = __builtin_amdgcn_workitem_id_x();
  tile[i] = a[i];
  __builtin_amdgcn_s_barrier();
  a[i] += b[i] + tile[i ^ 1];
}
kernel void scale(global double* a, double by, int n) {
  for (int i = 0; i < n; ++i) a[i * 64 + __builtin_amdgcn_workitem_id_x()] *= by;
}
kernel void nested(global int* a, int n, int m) {
  for (int i = 0; i < n; ++i) {
    a[i] += 1;
#pragma unroll 1
    for (int j = 0; j < m; ++j) a[j * 7 + i] ^= j;
  }
}
)";

const std::vector<uint8_t>& Object() {
  static const auto* object = new std::vector<uint8_t>(CompileOpenCl("gfx90a", kSource));
  return *object;
}

v1::Attachment Attach(const std::string& id, const std::string& kernel, const std::string& sites,
                      const std::string& probe, v1::Mode mode = v1::MODE_UNSPECIFIED) {
  v1::Attachment a;
  a.set_id(id);
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites(sites);
  a.mutable_spec()->set_probe(probe);
  a.mutable_spec()->set_mode(mode);
  return a;
}

Admission AdmitAll(const std::vector<v1::Attachment>& attachments,
                   const Policy& policy = DefaultPolicy(),
                   const std::vector<uint8_t>& object = Object(),
                   const Clock& now = std::chrono::steady_clock::now) {
  auto rewriter = patch::MakeTrampolineRewriter();
  return WithDecisions(Admit(object, attachments, policy, *rewriter, now));
}

using DecisionList = google::protobuf::RepeatedPtrField<v1::Decision>;

// By value, to walk over what an expression gives.
DecisionList DecisionsIn(Admission admission) {
  return std::move(*admission.record.mutable_decisions());
}

bool IsAttached(const v1::Decision& d) {
  return d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

std::map<v1::Outcome, int> Outcomes(const Admission& a, const std::string& id) {
  std::map<v1::Outcome, int> tally;
  for (const v1::Decision& d : a.record.decisions()) {
    if (d.attachment_id() == id) ++tally[d.outcome()];
  }
  return tally;
}

v1::Coverage Total(const Admission& a, const std::string& id) {
  v1::Coverage total;
  for (const v1::Coverage& row : a.record.coverage()) {
    if (row.attachment_id() == id) AddCoverage(total, row);
  }
  return total;
}

// Decisions of one attachment, without the other's.
std::vector<std::string> DecisionsOf(const Admission& a, const std::string& id) {
  std::vector<std::string> texts;
  for (const v1::Decision& d : a.record.decisions()) {
    if (d.attachment_id() == id) texts.push_back(d.DebugString());
  }
  return texts;
}

// ---- Modes --------------------------------------------------------------------------

TEST(DryRun, LeavesTheBytesAndEverybodyElseAlone) {
  // A second probe in the same places, that asks for trampolines besides.
  v1::Attachment dry = Attach("a2", "*", "memory", "count-lanes", v1::MODE_DRYRUN);
  dry.mutable_spec()->set_placement(v1::TRAMPOLINE);
  const v1::Attachment real = Attach("a3", "*", "memory or ds_*", "count-waves");
  const Admission without = AdmitAll({real});
  const Admission with = AdmitAll({dry, real});
  ASSERT_FALSE(without.patched.empty());
  EXPECT_EQ(with.patched, without.patched);
  EXPECT_EQ(with.fixups.size(), without.fixups.size());
  EXPECT_EQ(with.record.counter_count(), without.record.counter_count());
  EXPECT_EQ(DecisionsOf(with, "a3"), DecisionsOf(without, "a3"));
  EXPECT_EQ(DecisionsOf(without, "a2").size(), 0u);

  const auto outcomes = Outcomes(with, "a2");
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_GT(outcomes.at(v1::DRY_RUN), 5);
  for (const v1::Decision& d : with.record.decisions()) {
    if (d.attachment_id() != "a2") continue;
    EXPECT_EQ(d.would_be(), v1::VERIFIED_ATTACH) << d.ShortDebugString();
    EXPECT_FALSE(d.has_counter_index()) << "nothing counts";
    EXPECT_GT(d.delta().injected_instructions(), 0u) << "what it would cost";
    EXPECT_FALSE(d.site().location().instruction().empty());
  }
  const v1::Coverage total = Total(with, "a2");
  EXPECT_EQ(total.requested(), total.dry_run());
  EXPECT_EQ(total.attached(), 0u);
  EXPECT_TRUE(Conserved(total));
  EXPECT_EQ(DoneSites(total), total.requested());
  EXPECT_THAT(RenderCoverage(with.record.coverage()),
              HasSubstr("attachment a2: a dry run, nothing of it is attached"));
}

TEST(DryRun, AloneIsAnOriginalThatIsNotVacuous) {
  const Admission a = AdmitAll({Attach("a1", "*", "memory", "trace-address", v1::MODE_DRYRUN)});
  EXPECT_TRUE(a.patched.empty());
  EXPECT_EQ(a.record.counter_count(), 0u);
  EXPECT_EQ(a.record.ring_offset(), 0u);
  EXPECT_EQ(a.record.object_violations_size(), 0);
  const v1::Coverage total = Total(a, "a1");
  EXPECT_GT(total.dry_run(), 0u);
  EXPECT_GT(total.dry_run_degraded(), 0u) << "trace probes wait";
  EXPECT_EQ(total.dry_run_degradations(0).constraint_id(), id::kDrainsWaits);
  EXPECT_EQ(total.degradations_size(), 0);
  EXPECT_TRUE(Conserved(total));
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_FALSE(d.has_record_layout());
    EXPECT_EQ(d.would_be() == v1::ATTACH_WITH_DECLARED_DEGRADATION, d.degradations_size() > 0);
  }
  const std::string text = RenderRecord(a.record, true, {});
  EXPECT_THAT(text, HasSubstr("would be"));
  EXPECT_THAT(text, testing::Not(HasSubstr("error[")));
}

TEST(DryRun, WhatWouldBeRefusedIsRefused) {
  v1::Attachment dry = Attach("a1", "*", "memory or kernel+0x1", "count-waves", v1::MODE_DRYRUN);
  dry.mutable_spec()->mutable_budget()->set_max_injected_instructions_per_event(3);
  const Admission a = AdmitAll({dry});
  const auto outcomes = Outcomes(a, "a1");
  EXPECT_GT(outcomes.at(v1::OVER_BUDGET), 0);
  EXPECT_GT(outcomes.at(v1::UNSUPPORTED_SITE), 0);
  EXPECT_EQ(outcomes.count(v1::DRY_RUN), 0u);
  EXPECT_TRUE(Conserved(Total(a, "a1")));
}

TEST(Warn, IsEnforceWhereNothingIsExceeded) {
  const Admission enforced = AdmitAll({Attach("a1", "*", "memory", "count-waves")});
  const Admission warned = AdmitAll({Attach("a1", "*", "memory", "count-waves", v1::MODE_WARN)});
  // The record in it holds the spec, so that only the code can be the same.
  ASSERT_EQ(enforced.record.decisions_size(), warned.record.decisions_size());
  EXPECT_EQ(DecisionsOf(enforced, "a1"), DecisionsOf(warned, "a1"));
}

TEST(Warn, OwnLimitsAreDeclaredAndCeilingsHold) {
  const auto with = [](v1::Mode mode, uint32_t limit, std::optional<uint32_t> ceiling) {
    v1::Attachment a = Attach("a1", "add", "memory", "count-waves", mode);
    a.mutable_spec()->mutable_budget()->set_max_injected_instructions_per_event(limit);
    Policy policy = DefaultPolicy();
    if (ceiling) policy.ceiling.set_max_injected_instructions_per_event(*ceiling);
    return AdmitAll({a}, policy);
  };
  for (const v1::Decision& d : DecisionsIn(with(v1::MODE_ENFORCE, 3, std::nullopt))) {
    EXPECT_EQ(d.outcome(), v1::OVER_BUDGET);
  }
  const Admission warned = with(v1::MODE_WARN, 3, std::nullopt);
  ASSERT_GT(warned.record.decisions_size(), 0);
  for (const v1::Decision& d : warned.record.decisions()) {
    ASSERT_EQ(d.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION) << d.ShortDebugString();
    ASSERT_EQ(d.degradations_size(), 1);
    EXPECT_EQ(d.degradations(0).constraint_id(), id::kOverOwnLimit);
    EXPECT_THAT(d.degradations(0).message(), HasSubstr("the attachment allows 3"));
    EXPECT_THAT(d.degradations(0).message(), HasSubstr("RJD-B003"));
    EXPECT_THAT(d.degradations(0).message(),
                HasSubstr(StrCat(d.delta().injected_instructions(), " instructions")));
  }
  EXPECT_FALSE(warned.patched.empty());
  for (const v1::Decision& d : DecisionsIn(with(v1::MODE_WARN, 3, 4))) {
    EXPECT_EQ(d.outcome(), v1::OVER_BUDGET);
    EXPECT_THAT(d.violations(0).limit(), HasSubstr("the daemon's ceiling"));
  }
}

TEST(Warn, DefaultsTooAndEverySum) {
  v1::Attachment a = Attach("a1", "add", "memory", "count-waves", v1::MODE_WARN);
  Policy policy = DefaultPolicy();
  policy.defaults.set_max_telemetry_bytes_per_second(1);
  policy.defaults.set_max_code_growth_bytes(1);
  const Admission warned = AdmitAll({a}, policy);
  for (const v1::Decision& d : warned.record.decisions()) {
    ASSERT_EQ(d.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION) << d.ShortDebugString();
    ASSERT_EQ(d.degradations_size(), 2);
    EXPECT_THAT(d.degradations(0).message(), HasSubstr("the daemon's default allows 1"));
    EXPECT_THAT(d.degradations(0).message(), HasSubstr("RJD-B004"));
    EXPECT_THAT(d.degradations(1).message(), HasSubstr("RJD-B005"));
  }
  EXPECT_EQ(Total(warned, "a1").degradations(0).constraint_id(), id::kOverOwnLimit);
}

// All that is not a budget is as hard as ever.
TEST(Warn, ConsentsAndSitesAreNoBudget) {
  Policy policy = DefaultPolicy();
  policy.allow_sabotage = true;
  const Admission a = AdmitAll({Attach("a1", "add", "memory", "sabotage", v1::MODE_WARN)}, policy);
  for (const v1::Decision& d : a.record.decisions()) EXPECT_EQ(d.outcome(), v1::REJECTED_EFFECT);
  EXPECT_TRUE(a.patched.empty());
}

// Registers beyond the attachment's limit are taken only where there are no others.
TEST(Warn, RegistersBeyondTheLimitAreTheLastResort) {
  std::string body = "global_load_dword v0, v0, s[0:1]\ns_waitcnt vmcnt(0)\n";
  for (int v = 0; v < 32; v += 2) body += StrCat("v_add_u32 v0, v", v, ", v", v + 1, "\n");
  body += "global_store_dword v0, v0, s[0:1]\ns_endpgm\n";
  const auto object = AssembleObject("gfx90a", 64, {{.body = body, .vgprs = 32}});
  const auto with = [&](v1::Mode mode) {
    v1::Attachment a = Attach("a1", "*", "global_load*", "count-waves", mode);
    a.mutable_spec()->mutable_budget()->set_max_vgpr_delta(0);
    return AdmitAll({a}, DefaultPolicy(), object).record.decisions(0);
  };
  EXPECT_EQ(with(v1::MODE_ENFORCE).outcome(), v1::OVER_BUDGET);
  const v1::Decision warned = with(v1::MODE_WARN);
  EXPECT_EQ(warned.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION) << warned.ShortDebugString();
  EXPECT_GT(warned.delta().vgpr(), 0);
  EXPECT_THAT(warned.ShortDebugString(), HasSubstr("RJD-B002"));
}

// ---- The ladder ---------------------------------------------------------------------

TEST(Windows, CoverEveryUnitOnceAndNoneExceedsTheLimit) {
  const auto windows = [](const std::vector<uint64_t>& costs, uint64_t limit, size_t most) {
    std::vector<ProbeUnit> units;
    for (uint64_t cost : costs) units.push_back({0, units.size(), cost});
    return Windows(units, limit, most);
  };
  EXPECT_THAT(windows({4, 4, 4, 4}, 8, 9), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(windows({4, 4, 4, 4}, 8, 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(windows({1, 7, 1, 7, 8}, 8, 9), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(windows({9, 4, 4, 9, 4}, 8, 9), ElementsAre(0, 0, 0, 0, 1)) << "9 fits nowhere";
  EXPECT_THAT(windows({}, 8, 9), ElementsAre());
}

v1::Attachment OverTelemetry(uint64_t sites, std::initializer_list<v1::ReductionStep> steps) {
  v1::Attachment a = Attach("a1", "*", "memory or ds_*", "count-waves");
  a.mutable_spec()->mutable_budget()->set_expected_events_per_second(1000);
  a.mutable_spec()->mutable_budget()->set_max_telemetry_bytes_per_second(8000 * sites);
  for (const v1::ReductionStep step : steps) a.mutable_spec()->add_reduce(step);
  return a;
}

TEST(Ladder, NothingIsReducedUnasked) {
  const Admission a = AdmitAll({OverTelemetry(2, {})});
  EXPECT_EQ(Total(a, "a1").attached(), 2u);
  EXPECT_GT(Total(a, "a1").over_budget(), 0u);
  for (const v1::Coverage& row : a.record.coverage()) EXPECT_EQ(row.reductions_size(), 0);
}

TEST(Ladder, NothingIsReducedWithoutNeed) {
  const Admission a = AdmitAll({OverTelemetry(1000, {v1::REDUCE_BLOCK_COUNT, v1::REDUCE_ROTATE})});
  const v1::Coverage total = Total(a, "a1");
  EXPECT_EQ(total.attached(), total.requested());
  for (const v1::Coverage& row : a.record.coverage()) EXPECT_EQ(row.reductions_size(), 0);
  for (const v1::Decision& d : a.record.decisions()) EXPECT_FALSE(d.has_counted_at());
}

TEST(Ladder, BlockCountersComeFirstAndCountTheSame) {
  v1::Attachment blocks = OverTelemetry(1000, {});
  blocks.mutable_spec()->set_probe("block-count");
  const uint32_t needed = AdmitAll({blocks}).record.counter_count();
  v1::Attachment asked = OverTelemetry(needed, {v1::REDUCE_BLOCK_COUNT, v1::REDUCE_ROTATE});
  const Admission a = AdmitAll({asked});
  const v1::Coverage total = Total(a, "a1");
  EXPECT_EQ(total.attached() + total.degraded(), total.requested());
  EXPECT_EQ(a.record.counter_count(), needed);
  EXPECT_LT(needed, total.requested());
  const v1::Coverage& row = a.record.coverage(0);
  ASSERT_EQ(row.reductions_size(), 1);
  EXPECT_EQ(row.reductions(0).step(), v1::REDUCE_BLOCK_COUNT);
  EXPECT_EQ(row.reductions(0).probes_before(), total.requested());
  EXPECT_EQ(row.reductions(0).probes_after(), needed);
  EXPECT_EQ(row.reductions(0).constraint_id(), id::kTelemetryBudget);
  const auto reduced = patch::FindSection(a.patched, ".rjdbi.text");
  const Admission same = AdmitAll({blocks});
  const auto code = patch::FindSection(same.patched, ".rjdbi.text");
  ASSERT_TRUE(reduced && code);
  EXPECT_TRUE(*reduced == *code) << "the code is that of block-count";
}

TEST(Ladder, EverySiteHasItsTurn) {
  for (const bool blocks : {false, true}) {
    v1::Attachment asked = OverTelemetry(3, {v1::REDUCE_ROTATE});
    if (blocks) asked = OverTelemetry(3, {v1::REDUCE_BLOCK_COUNT, v1::REDUCE_ROTATE});
    std::map<std::pair<std::string, uint64_t>, int> turns;
    uint32_t windows = 1;
    uint64_t requested = 0;
    for (uint32_t rotation = 0; rotation < windows; ++rotation) {
      asked.mutable_spec()->set_rotation(rotation);
      const Admission a = AdmitAll({asked});
      const v1::Coverage total = Total(a, "a1");
      requested = total.requested();
      EXPECT_TRUE(Conserved(total));
      EXPECT_GT(total.rotated_out(), 0u);
      EXPECT_EQ(total.over_budget(), 0u);
      EXPECT_LE(a.record.counter_count(), 3u);
      const v1::Reduction& step = *a.record.coverage(0).reductions().rbegin();
      EXPECT_EQ(step.step(), v1::REDUCE_ROTATE);
      EXPECT_EQ(step.window(), rotation);
      EXPECT_EQ(step.probes_after(), a.record.counter_count());
      windows = step.windows();
      for (const v1::Decision& d : a.record.decisions()) {
        const auto place =
            std::pair(d.site().location().kernel(), d.site().location().kernel_offset());
        if (IsAttached(d)) {
          ++turns[place];
          continue;
        }
        EXPECT_EQ(d.outcome(), v1::ROTATED_OUT);
        EXPECT_EQ(d.violations(0).constraint_id(), id::kRotatedOut);
      }
    }
    EXPECT_GT(windows, 1u);
    EXPECT_EQ(turns.size(), requested) << "all of them";
    for (const auto& [place, n] : turns) EXPECT_EQ(n, 1) << place.first << "+" << place.second;
    const Admission again = [&] {
      asked.mutable_spec()->set_rotation(windows);
      return AdmitAll({asked});
    }();
    asked.mutable_spec()->set_rotation(0);
    EXPECT_EQ(DecisionsOf(again, "a1"), DecisionsOf(AdmitAll({asked}), "a1"));
  }
}

TEST(Ladder, CodeGrowthRotatesToo) {
  v1::Attachment asked = Attach("a1", "*", "memory", "count-waves");
  asked.mutable_spec()->set_placement(v1::TRAMPOLINE);
  const v1::Coverage all = Total(AdmitAll({asked}), "a1");
  asked.mutable_spec()->mutable_budget()->set_max_code_growth_bytes(5000);
  const v1::Coverage refused = Total(AdmitAll({asked}), "a1");
  ASSERT_GT(refused.over_budget(), 0u);
  ASSERT_GT(refused.attached(), 0u);
  asked.mutable_spec()->add_reduce(v1::REDUCE_ROTATE);
  const Admission a = AdmitAll({asked});
  const v1::Coverage rotated = Total(a, "a1");
  EXPECT_EQ(rotated.requested(), all.requested());
  EXPECT_GT(rotated.rotated_out(), 0u);
  EXPECT_GT(rotated.attached(), 0u);
  EXPECT_EQ(a.record.coverage(0).reductions(0).constraint_id(), id::kCodeGrowthBudget);
  EXPECT_TRUE(Conserved(rotated));
}

TEST(Ladder, OthersKeepTheirSites) {
  const v1::Attachment other = Attach("a2", "*", "memory", "count-lanes");
  const Admission a = AdmitAll({OverTelemetry(2, {v1::REDUCE_ROTATE}), other});
  const v1::Coverage total = Total(a, "a2");
  EXPECT_EQ(total.attached() + total.degraded(), total.requested());
  EXPECT_EQ(Total(a, "a1").attached(), 2u);
}

TEST(Ladder, StepsThatMakeNoSenseAreRefusedAtOnce) {
  const auto check = [](const char* probe, std::initializer_list<int> steps, uint32_t rotation) {
    v1::AttachmentSpec spec = Attach("", "*", "memory", probe).spec();
    for (const int step : steps) spec.add_reduce(static_cast<v1::ReductionStep>(step));
    spec.set_rotation(rotation);
    return CheckSpec(spec, DefaultPolicy());
  };
  EXPECT_TRUE(check("count-waves", {1, 2}, 7).empty());
  EXPECT_TRUE(check("count-lanes", {2}, 0).empty());
  EXPECT_EQ(check("count-lanes", {1}, 0).at(0).constraint_id(), id::kBadSpec);
  EXPECT_EQ(check("count-waves", {2, 2}, 0).size(), 1u);
  EXPECT_EQ(check("count-waves", {9}, 0).size(), 1u);
  EXPECT_EQ(check("count-waves", {}, 1).size(), 1u);
}

// ---- Rates --------------------------------------------------------------------------

TEST(Rate, LoopsAndHintsAreToldApart) {
  Policy policy = DefaultPolicy();
  policy.defaults.set_expected_events_per_second(100);
  policy.loop_factor = 10;
  v1::Attachment asked = Attach("a1", "nested", "memory(write)", "count-waves");
  std::set<std::tuple<uint32_t, uint64_t>> rates;
  const Admission a = AdmitAll({asked}, policy);
  uint64_t events = 0, bytes = 0;
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_EQ(d.rate().source(), v1::STATIC_LOOP_DEPTH);
    rates.emplace(d.rate().loop_depth(), d.rate().events_per_second());
    events += d.rate().events_per_second();
    bytes += d.rate().events_per_second() * d.delta().telemetry_bytes_per_event();
  }
  EXPECT_TRUE(rates.count({1, 1000})) << a.record.ShortDebugString();
  EXPECT_TRUE(rates.count({2, 10000})) << a.record.ShortDebugString();
  EXPECT_EQ(Total(a, "a1").expected_events_per_second(), events);
  EXPECT_EQ(Total(a, "a1").expected_telemetry_bytes_per_second(), bytes);
  EXPECT_EQ(Total(a, "a1").rate_source(), v1::STATIC_LOOP_DEPTH);
  EXPECT_THAT(RenderCoverage(a.record.coverage()), HasSubstr("assumed from loops"));

  asked.mutable_spec()->mutable_budget()->set_expected_events_per_second(7);
  const Admission hinted = AdmitAll({asked}, policy);
  for (const v1::Decision& d : hinted.record.decisions()) {
    EXPECT_EQ(d.rate().source(), v1::OPERATOR_HINT);
    EXPECT_EQ(d.rate().events_per_second(), 7u);
  }
}

TEST(Rate, ARefusalSaysWhereTheRateIsFrom) {
  Policy policy = DefaultPolicy();
  policy.defaults.set_expected_events_per_second(100);
  policy.defaults.set_max_telemetry_bytes_per_second(0);
  std::string texts;
  for (const v1::Decision& d :
       DecisionsIn(AdmitAll({Attach("a1", "nested", "memory(write)", "count-waves")}, policy))) {
    texts += d.violations(0).message() + "\n";
  }
  EXPECT_THAT(texts, HasSubstr("1000 events per second of this site, assumed from 100 outside "
                               "loops and a factor of 10 for the loop around it"));
  EXPECT_THAT(texts, HasSubstr("10000 events per second of this site, assumed from 100 outside "
                               "loops and a factor of 10 for each of 2 loops around it"));
}

// ---- Time ---------------------------------------------------------------------------

// A second passes each time that somebody looks.
Clock TickingClock() {
  return [time = std::chrono::steady_clock::time_point()]() mutable {
    return time += std::chrono::seconds(1);
  };
}

TEST(AdmissionTime, KernelsThatAreNotReachedAreRefused) {
  v1::Attachment asked = Attach("a1", "*", "memory", "count-waves");
  asked.mutable_spec()->mutable_budget()->set_max_admission_time_ms(2500);
  const v1::Attachment other = Attach("a2", "*", "memory", "nop");
  const Admission a = AdmitAll({asked, other}, DefaultPolicy(), Object(), TickingClock());
  EXPECT_TRUE(a.record.cut_short());
  std::map<std::string, std::vector<v1::Decision>> kernels;
  for (const v1::Decision& d : a.record.decisions()) {
    if (d.attachment_id() == "a1") kernels[d.site().location().kernel()].push_back(d);
  }
  ASSERT_EQ(kernels.size(), 3u) << "each has its row";
  int not_looked_at = 0;
  for (const auto& [kernel, decisions] : kernels) {
    for (const v1::Decision& d : decisions) {
      ASSERT_EQ(d.outcome(), v1::OVER_BUDGET) << "the image was not made in time either";
      EXPECT_EQ(d.violations(0).constraint_id(), id::kAdmissionTime);
      EXPECT_THAT(d.violations(0).observed(), HasSubstr("000 ms"));
      EXPECT_EQ(d.violations(0).limit(), "2500 ms (the attachment)");
      EXPECT_EQ(d.violations(0).location().kernel(), kernel);
      not_looked_at += d.site().location().instruction().empty() ? 1 : 0;
    }
  }
  EXPECT_EQ(not_looked_at, 1) << "the third";
  const v1::Coverage others = Total(a, "a2");
  EXPECT_EQ(others.attached() + others.degraded(), others.requested());
  for (const v1::Coverage& row : a.record.coverage()) EXPECT_TRUE(Conserved(row));
}

TEST(AdmissionTime, EnoughOfItChangesNothing) {
  v1::Attachment asked = Attach("a1", "*", "memory", "count-waves");
  const Admission without = AdmitAll({asked});
  asked.mutable_spec()->mutable_budget()->set_max_admission_time_ms(100'000);
  const Admission with = AdmitAll({asked}, DefaultPolicy(), Object(), TickingClock());
  EXPECT_FALSE(with.record.cut_short());
  EXPECT_EQ(DecisionsOf(with, "a1"), DecisionsOf(without, "a1"));
}

TEST(AdmissionTime, ThatOnlyWarnsIsDeclared) {
  v1::Attachment asked = Attach("a1", "add", "memory", "count-waves", v1::MODE_WARN);
  asked.mutable_spec()->mutable_budget()->set_max_admission_time_ms(500);
  const Admission a = AdmitAll({asked}, DefaultPolicy(), Object(), TickingClock());
  EXPECT_FALSE(a.record.cut_short());
  for (const v1::Decision& d : a.record.decisions()) {
    ASSERT_EQ(d.degradations_size(), 1);
    EXPECT_THAT(d.degradations(0).message(), HasSubstr("RJD-B011"));
  }
}

// ---- Other limits -------------------------------------------------------------------

TEST(Limits, LessThanEveryEventRefusesWhatLooksAtAllOfThem) {
  v1::Attachment asked = Attach("a1", "add", "memory", "count-waves");
  asked.mutable_spec()->mutable_budget()->set_max_sampled_event_fraction(999'999);
  for (const v1::Decision& d : DecisionsIn(AdmitAll({asked}))) {
    EXPECT_EQ(d.outcome(), v1::OVER_BUDGET);
    EXPECT_EQ(d.violations(0).constraint_id(), id::kSampledFraction);
  }
  asked.mutable_spec()->mutable_budget()->set_max_sampled_event_fraction(1'000'000);
  EXPECT_FALSE(AdmitAll({asked}).patched.empty());
}

// gfx90a has its accumulation registers behind the others, from a multiple of 4 on, in
// an allocation of multiples of 8: growing by one register can make room for more.
TEST(Limits, AccumulationRegistersAreReadFromTheFinishedDescriptor) {
  std::string body = "global_load_dword v0, v0, s[0:1]\ns_waitcnt vmcnt(0)\n";
  for (int v = 0; v < 32; v += 2) body += StrCat("v_add_u32 v0, v", v, ", v", v + 1, "\n");
  body += "global_store_dword v0, v0, s[0:1]\ns_endpgm\n";
  const auto object = AssembleObject("gfx90a", 64, {{.body = body, .vgprs = 32}});
  v1::Attachment asked = Attach("a1", "*", "global_load*", "count-waves");
  const v1::Decision grown = AdmitAll({asked}, DefaultPolicy(), object).record.decisions(0);
  ASSERT_TRUE(IsAttached(grown)) << grown.ShortDebugString();
  ASSERT_GT(grown.delta().vgpr(), 0);
  EXPECT_EQ(grown.delta().scratch_bytes(), 0);
  EXPECT_EQ(grown.delta().lds_bytes(), 0);
  asked.mutable_spec()->mutable_budget()->set_max_agpr_delta(0);
  const v1::Decision limited = AdmitAll({asked}, DefaultPolicy(), object).record.decisions(0);
  EXPECT_EQ(IsAttached(limited), grown.delta().agpr() <= 0) << limited.ShortDebugString();
  if (!IsAttached(limited)) {
    EXPECT_EQ(limited.violations(0).constraint_id(), id::kAgprBudget);
  }
}

// ---- Sums ---------------------------------------------------------------------------

// Whatever is asked for, each requested site is in exactly one term, in the row of its
// kernel, and so in every sum.
TEST(Conservation, OfAnythingThatIsAskedFor) {
  const std::vector<std::string> kernels = {"*", "add", "scale", "nested", "none"};
  const std::vector<std::string> sites = {"memory", "ds_*",       "*",    "entry",
                                          "block",  "kernel+0x1", "exit", "memory(write) or salu"};
  const std::vector<std::string> probes = {"count-waves", "count-lanes",   "block-count",
                                           "nop",         "trace-address", "trace-exec",
                                           "clock",       "sabotage"};
  std::mt19937 random(20261130);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::map<std::string, uint64_t> reached;
  for (int round = 0; round < 60; ++round) {
    std::vector<v1::Attachment> attachments;
    const size_t count = 1 + pick(4);
    for (size_t i = 0; i < count; ++i) {
      v1::Attachment a =
          Attach(StrCat("a", i + 1), kernels[pick(kernels.size())], sites[pick(sites.size())],
                 probes[pick(probes.size())], static_cast<v1::Mode>(pick(4)));
      v1::AttachmentSpec& spec = *a.mutable_spec();
      spec.set_allow_sabotage(pick(2) == 0);
      spec.set_placement(static_cast<v1::Placement>(pick(4)));
      if (pick(3) == 0) spec.set_position(v1::AFTER);
      v1::Budget& budget = *spec.mutable_budget();
      if (pick(3) == 0) budget.set_max_telemetry_bytes_per_second(pick(20) * 80'000);
      if (pick(3) == 0) budget.set_max_code_growth_bytes(pick(8000));
      if (pick(4) == 0) {
        budget.set_max_injected_instructions_per_event(static_cast<uint32_t>(pick(60)));
      }
      if (pick(6) == 0) budget.set_max_admission_time_ms(static_cast<uint32_t>(pick(8) * 1000));
      if (pick(2) == 0 && spec.probe() == "count-waves") spec.add_reduce(v1::REDUCE_BLOCK_COUNT);
      if (pick(2) == 0) spec.add_reduce(v1::REDUCE_ROTATE);
      spec.set_rotation(static_cast<uint32_t>(pick(5)));
      attachments.push_back(std::move(a));
    }
    Policy policy = DefaultPolicy();
    policy.allow_sabotage = true;
    const Admission a = AdmitAll(attachments, policy, Object(), TickingClock());
    std::map<std::pair<std::string, std::string>, std::map<v1::Outcome, uint64_t>> tallies;
    for (const v1::Decision& d : a.record.decisions()) {
      ++tallies[{d.site().location().kernel(), d.attachment_id()}][d.outcome()];
      EXPECT_EQ(d.outcome() == v1::DRY_RUN, d.would_be() != v1::OUTCOME_UNSPECIFIED);
      EXPECT_EQ(IsAttached(d) || d.outcome() == v1::DRY_RUN, d.violations().empty())
          << d.ShortDebugString();
    }
    std::map<std::string, v1::Coverage> of_attachment;
    v1::Coverage of_object;
    size_t rows = 0;
    for (const v1::Coverage& row : a.record.coverage()) {
      EXPECT_TRUE(Conserved(row)) << row.ShortDebugString();
      AddCoverage(of_attachment[row.attachment_id()], row);
      AddCoverage(of_object, row);
      if (row.requested() == 0) continue;
      ++rows;
      auto& tally = tallies[{row.kernel(), row.attachment_id()}];
      uint64_t all = 0;
      for (const auto& [outcome, n] : tally) all += n;
      EXPECT_EQ(row.requested(), all);
      EXPECT_EQ(row.attached(), tally[v1::VERIFIED_ATTACH]);
      EXPECT_EQ(row.degraded(), tally[v1::ATTACH_WITH_DECLARED_DEGRADATION]);
      EXPECT_EQ(row.unsupported(), tally[v1::UNSUPPORTED_SITE]);
      EXPECT_EQ(row.rejected(), tally[v1::REJECTED_EFFECT]);
      EXPECT_EQ(row.over_budget(), tally[v1::OVER_BUDGET]);
      EXPECT_EQ(row.rotated_out(), tally[v1::ROTATED_OUT]);
      EXPECT_EQ(row.dry_run(), tally[v1::DRY_RUN]);
    }
    EXPECT_EQ(rows, tallies.size());
    EXPECT_EQ(of_attachment.size(), attachments.size()) << "a row at least";
    uint64_t requested = 0;
    for (const auto& [id, total] : of_attachment) {
      EXPECT_TRUE(Conserved(total)) << id;
      requested += total.requested();
    }
    EXPECT_TRUE(Conserved(of_object));
    EXPECT_EQ(of_object.requested(), requested);
    // Every term that is not zero is said.
    const std::string text = RenderTotal(of_object) + RenderCoverage(a.record.coverage());
    const std::tuple<const char*, const char*, uint64_t> terms[] = {
        {" attached", "ATTACHED", of_object.attached()},
        {" degraded", "DEGRADED", of_object.degraded()},
        {" unsupported", "UNSUPPORTED", of_object.unsupported()},
        {" rejected", "REJECTED", of_object.rejected()},
        {" over budget", "OVER BUDGET", of_object.over_budget()},
        {" rotated out", "ROTATED OUT", of_object.rotated_out()},
        {" dry run", "DRY RUN", of_object.dry_run()}};
    for (const auto& [total, column, n] : terms) {
      if (n == 0) continue;
      reached[column] += n;
      EXPECT_THAT(text, HasSubstr(StrCat(n, total)));
      EXPECT_THAT(text, HasSubstr(column));
    }
    // Attachments that only ask have no part in the bytes.
    std::vector<v1::Attachment> shipped;
    for (const v1::Attachment& asked : attachments) {
      if (asked.spec().mode() != v1::MODE_DRYRUN) shipped.push_back(asked);
    }
    EXPECT_EQ(AdmitAll(shipped, policy, Object(), TickingClock()).patched, a.patched);
  }
  EXPECT_EQ(reached.size(), 7u) << "the test reaches every term";
}

}  // namespace
}  // namespace rjdbi::contract
