// What rjctl hands on of what was collected: CSV, other viewers' formats, and orders that
// coverage supports or does not.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/pprof.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rjdbi/telemetry_ring.h"
#include "rjdbi/v1/control.pb.h"
#include "tests/daemon/harness.h"

namespace rjdbi::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using CsvRows = std::vector<std::map<std::string, std::string>>;

// RFC 4180, by the letter.
std::vector<std::string> CsvCells(std::istream& in) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (int c = in.get(); c != EOF; c = in.get()) {
    if (quoted && c == '"' && in.peek() == '"') {
      cells.back() += static_cast<char>(in.get());
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c == '\n' && !quoted) {
      return cells;
    } else {
      cells.back() += static_cast<char>(c);
    }
  }
  EXPECT_FALSE(quoted);
  return cells;
}

CsvRows ParseCsv(const std::string& text, std::vector<std::string>* header = nullptr) {
  std::istringstream in(text);
  const std::vector<std::string> names = CsvCells(in);
  if (header != nullptr) *header = names;
  CsvRows rows;
  while (in.peek() != EOF) {
    const std::vector<std::string> cells = CsvCells(in);
    EXPECT_EQ(cells.size(), names.size()) << absl::StrJoin(cells, "|");
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (size_t i = 0; i < std::min(cells.size(), names.size()); ++i) row[names[i]] = cells[i];
  }
  return rows;
}

std::string Gunzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, MAX_WBITS + 16), Z_OK);
  std::string out(1 << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

// A record of clock, as a wavefront writes it.
std::string ClockRecord(uint32_t site, uint64_t time, uint32_t wave) {
  constexpr uint32_t kBytes = 32;
  const rjdbi_record_header header = {
      UINT64_MAX, 0,
      uint32_t{RJDBI_RECORD_CLOCK} << RJDBI_RECORD_KIND_SHIFT |
          kBytes / RJDBI_RECORD_ALIGNMENT << RJDBI_RECORD_SIZE_SHIFT | site};
  const uint32_t own[4] = {static_cast<uint32_t>(time), static_cast<uint32_t>(time >> 32), wave, 0};
  std::string record(kBytes, '\0');
  std::memcpy(record.data(), &header, sizeof header);
  std::memcpy(record.data() + sizeof header, own, sizeof own);
  return record;
}

// A session with one load, whose counters hold `counts`.
bool Load(Agent& agent, const std::vector<uint64_t>& counts, bool final,
          const std::string& object = CodeObject()) {
  if (!agent.Open().ok() || agent.Admit(object, 5).decision.verdict() != v1::PATCHED) return false;
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  v1::LoadCounters& load = *request.add_loads();
  load.set_load_id(5);
  for (const uint64_t count : counts) load.add_counters(count);
  load.set_final(final);
  return agent.Report(request).ok();
}

// A process that ends without a word.
int DieAfterCounting(const std::string& socket) {
  Agent agent(socket);
  _exit(Load(agent, {1, 2}, false) ? 42 : 1);
}

class Reading : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(daemon_.Start()) << daemon_.log(); }

  ProgramResult Ctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), RJDBI_RJCTL);
    return RunProgram(arguments, {"RJDBI_CONTROL_SOCKET=" + daemon_.control_socket()});
  }

  // One load, whose counters hold `counts`.
  void Count(const std::vector<uint64_t>& counts, bool final = true) {
    agent_ = std::make_unique<Agent>(daemon_.agent_socket());
    ASSERT_TRUE(Load(*agent_, counts, final));
  }

  Daemon daemon_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(Reading, CsvHasEveryColumnAndQuotes) {
  daemon_.Attach("add_one", "global_*", "count-waves");
  Count({100, 300});
  const ProgramResult csv = Ctl({"report", "-o", "csv"});
  EXPECT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(csv.err, "");
  std::vector<std::string> header;
  const CsvRows rows = ParseCsv(csv.out, &header);
  // The page documents each column, in this order.
  const std::string page = ReadFile(RJDBI_SOURCE_DIR "/clients/man/rjctl.1.scd");
  EXPECT_THAT(page, HasSubstr(absl::StrJoin(header, ", ", [](std::string* out, auto name) {
                absl::StrAppend(out, "_", absl::StrJoin(absl::StrSplit(name, '_'), "\\_"), "_");
              })));
  const v1::GetReportReply report = daemon_.Report();
  ASSERT_EQ(rows.size(), 2u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const v1::SiteCount& count = report.counts(static_cast<int>(i));
    const std::map<std::string, std::string> want = {
        {"rank", ""},
        {"attachment", "a1"},
        {"detached", "false"},
        {"probe", "count-waves"},
        {"unit", "wavefronts"},
        {"count", absl::StrCat(count.count())},
        {"lower_bound", "false"},
        {"words", ""},
        {"kernel", "add_one"},
        {"kernel_demangled", "add_one"},
        {"code_object_sha256", count.code_object_sha256()},
        {"kernel_offset", absl::StrCat(count.location().kernel_offset())},
        {"sites", "1"},
        {"code_object_vaddr", absl::StrCat(count.location().code_object_vaddr())},
        {"opcode", i == 0 ? "global_load_dword" : "global_store_dword"},
        {"instruction", count.location().instruction()},
        {"outcome", v1::Outcome_Name(count.outcome())},
        {"sessions", count.session_id()},
        {"records_stored", ""},
        {"ring_full", ""},
        {"not_arrived", ""},
        {"rate_limited", ""},
        {"made_room", ""}};
    EXPECT_EQ(rows[i], want);
    EXPECT_THAT(count.location().instruction(), HasSubstr(",")) << "quoting is not tried";
  }
  const CsvRows kernels = ParseCsv(Ctl({"report", "-o", "csv", "--by", "kernel"}).out);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].at("count"), "400");
  EXPECT_EQ(kernels[0].at("sites"), "2");
  EXPECT_EQ(kernels[0].at("instruction"), "");
  EXPECT_EQ(Ctl({"coverage", "-o", "csv"}).exit_code, 2);
}

TEST_F(Reading, CountsAreRankedWhenAllIsCounted) {
  daemon_.Attach("add_one", "global_*", "count-waves");
  Count({100, 300});
  const ProgramResult table = Ctl({"report", "--sort", "count"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, ContainsRegex("^RANK +ATTACHMENT"));
  EXPECT_THAT(table.out, ContainsRegex("1 +a1 +count-waves +300 .*\n +2 +a1 +count-waves +100 "));
  EXPECT_THAT(table.err, Not(HasSubstr("not ranked")));
  const CsvRows rows = ParseCsv(Ctl({"report", "--sort", "count", "-o", "csv"}).out);
  EXPECT_EQ(rows[0].at("rank") + rows[0].at("count"), "1300");
  EXPECT_EQ(rows[1].at("rank") + rows[1].at("count"), "2100");
  EXPECT_EQ(Ctl({"report", "--sort", "size"}).exit_code, 2);
}

TEST_F(Reading, EqualCountsHaveEqualRanks) {
  daemon_.Attach("add_one", "global_*", "count-waves");
  Count({7, 7});
  const CsvRows rows = ParseCsv(Ctl({"report", "--sort", "count", "-o", "csv"}).out);
  EXPECT_EQ(rows[0].at("rank") + rows[1].at("rank"), "11");
}

// Everything that was asked for has to be counted, and in one unit.
TEST_F(Reading, WhatIsNotCountedKeepsCountsFromBeingRanked) {
  const auto not_ranked = [&](const std::string& why) {
    for (const char* format : {"table", "csv"}) {
      const ProgramResult result = Ctl({"report", "--sort", "count", "-o", format});
      EXPECT_THAT(result.err, HasSubstr("not ranked: " + why));
      EXPECT_THAT(result.out, Not(HasSubstr("RANK")));
    }
    const CsvRows rows = ParseCsv(Ctl({"report", "--sort", "count", "-o", "csv"}).out);
    EXPECT_EQ(Ctl({"report", "-o", "csv"}).out, Ctl({"report", "-o", "csv", "--sort", "count"}).out)
        << "the natural order is kept";
    for (const auto& row : rows) EXPECT_EQ(row.at("rank"), "");
  };
  daemon_.Attach("add_one", "global_*", "count-waves");
  // Sites that are refused could have run more often.
  ASSERT_EQ(Ctl({"attach", "--kernel", "lds_sum", "--sites", "ds_*", "--probe", "count-waves",
                 "--max-injected-instructions", "1"})
                .exit_code,
            0);
  Count({100, 300});
  const v1::GetReportReply report = daemon_.Report();
  const v1::Coverage& total = report.coverage().total();
  ASSERT_GT(total.requested(), total.attached());
  not_ranked(absl::StrCat(total.requested() - total.attached(), " of ", total.requested(),
                          " sites that were asked for are not counted"));
  EXPECT_THAT(Ctl({"report", "--sort", "count", "--attachment", "a1"}).out, HasSubstr("RANK"));

  ASSERT_TRUE(daemon_.Detach("a2").ok());
  EXPECT_THAT(Ctl({"report", "--sort", "count"}).out, HasSubstr("RANK"));
  daemon_.Attach("lds_sum", "ds_*", "count-lanes");
  ASSERT_EQ(agent_->Admit(CodeObject(), 6).decision.verdict(), v1::PATCHED);
  v1::ReportRequest more;
  more.set_session_id(agent_->session_id);
  v1::LoadCounters& load = *more.add_loads();
  load.set_load_id(6);
  const v1::Coverage placed = daemon_.Report().coverage().total();
  for (uint64_t i = 0; i < placed.attached() + placed.degraded(); ++i) load.add_counters(64);
  ASSERT_TRUE(agent_->Report(more).ok());
  not_ranked("the counts are of different things: lanes, wavefronts");
}

TEST_F(Reading, AKilledProcessKeepsCountsFromBeingRanked) {
  daemon_.Attach("add_one", "global_*", "count-waves");
  Count({100, 300}, /*final=*/false);
  EXPECT_THAT(Ctl({"report", "--sort", "count"}).out, HasSubstr("RANK")) << "of what it has so far";
  ASSERT_TRUE(agent_->Close().ok());
  const ProgramResult child =
      RunProgram({"/proc/self/exe"}, {"TEST_DIE_AFTER_COUNTING_ON=" + daemon_.agent_socket()});
  ASSERT_EQ(child.exit_code, 42) << child.err;
  ASSERT_TRUE(Eventually([&] {
    const v1::GetStatusReply status = daemon_.Status();
    return std::any_of(status.sessions().begin(), status.sessions().end(), [](const auto& session) {
      return session.closed_unix_ns() != 0 && !session.closed_cleanly();
    });
  }));
  EXPECT_THAT(Ctl({"report", "--sort", "count"}).err,
              HasSubstr("not ranked: a process was killed"));
}

TEST_F(Reading, WhatDetachedAttachmentsLeftIsSaidToBeLeftOut) {
  const std::string id = daemon_.Attach("add_one", "global_*", "count-waves").attachment().id();
  Count({100, 300});
  ASSERT_EQ(Ctl({"detach", id}).exit_code, 0);
  const std::string page = daemon_.state() + "/page.html";
  const std::vector<std::vector<std::string>> verbs = {{"report"},
                                                       {"report", "--html", page},
                                                       {"export", "--format", "folded"},
                                                       {"opcodes", "profile", RJDBI_OPCODE_TABLE}};
  for (std::vector<std::string> verb : verbs) {
    EXPECT_THAT(Ctl(verb).err, HasSubstr("1 detached attachment has left is not shown (--all)"))
        << absl::StrJoin(verb, " ");
    verb.emplace_back("--all");
    const ProgramResult all = Ctl(verb);
    EXPECT_EQ(all.exit_code, verb[0] == "opcodes" ? 4 : 0) << absl::StrJoin(verb, " ") << all.err;
    EXPECT_THAT(all.err, Not(HasSubstr("is not shown"))) << absl::StrJoin(verb, " ");
  }
}

TEST_F(Reading, FoldedStacksAddUp) {
  daemon_.Attach("*", "global_*", "count-waves");
  Count({100, 300, 0, 7});
  const ProgramResult folded = Ctl({"export", "--format", "folded"});
  EXPECT_EQ(folded.exit_code, 0) << folded.err;
  EXPECT_THAT(folded.err, HasSubstr("1 count is zero and not in it"));
  uint64_t sum = 0;
  for (const auto line : absl::StrSplit(folded.out, '\n', absl::SkipEmpty())) {
    const std::string text(line);
    const size_t space = text.rfind(' ');
    sum += std::stoull(text.substr(space + 1));
    const std::vector<std::string> frames = absl::StrSplit(text.substr(0, space), ';');
    ASSERT_GE(frames.size(), 3u) << text;
    EXPECT_EQ(frames[0], daemon_.Status().sessions(0).executable());
    EXPECT_TRUE(frames[1] == "add_one" || frames[1] == "lds_sum") << text;
    EXPECT_THAT(frames.back(), ContainsRegex("^\\+0x[0-9a-f]+ global_"));
  }
  EXPECT_EQ(sum, 407u);
}

TEST_F(Reading, CountsOfDifferentThingsAreNotStacked) {
  daemon_.Attach("add_one", "global_load*", "count-waves");
  daemon_.Attach("add_one", "global_store*", "count-lanes");
  Count({100, 6400});
  const ProgramResult folded = Ctl({"export", "--format", "folded"});
  EXPECT_EQ(folded.exit_code, 2);
  EXPECT_EQ(folded.out, "");
  EXPECT_THAT(folded.err, HasSubstr("lanes, wavefronts"));
  EXPECT_THAT(Ctl({"export", "--format", "folded", "--attachment", "a2"}).out,
              HasSubstr(" 6400\n"));
}

TEST_F(Reading, SlipsAreUsageErrors) {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::string>> slips = {
      {"export"},
      {"export", "--format", "svg"},
      {"export", "--format", "folded", "--output-file", folder.path() + "/no/such"},
      {"export", "--format", "folded", "--attachment", "a9"},
      {"report", "--html", folder.path() + "/no/such"},
      {"report", "--html", folder.path() + "/page", "--attachment", "a9"},
      {"top", "--attachment", "a9"},
      {"top", "--interval", "0"},
      {"top", "--count", "0"}};
  for (const std::vector<std::string>& slip : slips) {
    const ProgramResult result = Ctl(slip);
    EXPECT_EQ(result.exit_code, 2) << absl::StrJoin(slip, " ");
    EXPECT_EQ(result.out, "") << absl::StrJoin(slip, " ");
  }
  // Nothing has been counted: that is said, and what is written can be read.
  const ProgramResult folded = Ctl({"export", "--format", "folded"});
  EXPECT_EQ(folded.exit_code, 3);
  EXPECT_EQ(folded.out, "");
  EXPECT_THAT(folded.err, HasSubstr("0 sites requested"));
  pprof::Profile profile;
  ASSERT_TRUE(profile.ParseFromString(Gunzip(Ctl({"export", "--format", "pprof"}).out)));
  EXPECT_EQ(profile.sample_type_size(), 1);
  EXPECT_EQ(profile.sample_size(), 0);
}

TEST_F(Reading, ProfilesHoldEveryCount) {
  daemon_.Attach("add_one", "global_load*", "count-waves");
  daemon_.Attach("add_one", "global_store*", "count-lanes");
  Count({100, 6400});
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/profile.pb.gz";
  const ProgramResult result = Ctl({"export", "--format", "pprof", "--output-file", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  pprof::Profile profile;
  ASSERT_TRUE(profile.ParseFromString(Gunzip(ReadFile(file))));
  const auto text = [&](int64_t index) { return profile.string_table(static_cast<int>(index)); };
  EXPECT_EQ(text(0), "");
  ASSERT_EQ(profile.sample_type_size(), 2);
  EXPECT_EQ(text(profile.sample_type(0).type()), "lanes");
  EXPECT_EQ(text(profile.sample_type(1).type()), "wavefronts");
  ASSERT_EQ(profile.sample_size(), 2);
  const v1::GetReportReply report = daemon_.Report();
  std::set<uint64_t> addresses;
  for (const pprof::Sample& sample : profile.sample()) {
    ASSERT_EQ(sample.value_size(), 2);
    const bool lanes = sample.value(0) != 0;
    EXPECT_THAT(sample.value(), lanes ? ElementsAre(6400, 0) : ElementsAre(0, 100));
    const v1::SiteCount& count = report.counts((report.counts(0).count() == 6400) == lanes ? 0 : 1);
    ASSERT_EQ(sample.location_id_size(), 3);
    const auto location = [&](int i) {
      return profile.location(static_cast<int>(sample.location_id(i)) - 1);
    };
    const auto function = [&](int i) {
      return profile.function(static_cast<int>(location(i).line(0).function_id()) - 1);
    };
    EXPECT_EQ(location(0).address(), count.location().code_object_vaddr());
    EXPECT_EQ(text(function(0).name()),
              absl::StrCat("add_one+0x", absl::Hex(count.location().kernel_offset()), " ",
                           count.location().instruction()));
    EXPECT_EQ(text(function(1).name()), "add_one");
    EXPECT_EQ(text(profile.mapping(0).build_id()), count.code_object_sha256());
    EXPECT_GT(profile.mapping(0).memory_limit(), location(0).address());
    addresses.insert(location(0).address());
  }
  EXPECT_EQ(addresses.size(), 2u);
}

TEST_F(Reading, TracesHaveSpansOfEachWavefront) {
  daemon_.Attach("add_one", "entry or global_store*", "clock");
  agent_ = std::make_unique<Agent>(daemon_.agent_socket());
  ASSERT_TRUE(agent_->Open().ok());
  ASSERT_EQ(agent_->Admit(CodeObject(), 5).decision.verdict(), v1::PATCHED);
  v1::ReportRequest request;
  request.set_session_id(agent_->session_id);
  v1::RecordBatch& batch = *request.add_batches();
  batch.set_load_id(5);
  batch.set_sequence(1);
  batch.set_count(5);
  batch.set_written(5);
  // A wavefront, another beside it, and a third in the first one's place.
  batch.set_records(ClockRecord(0, 1000, 0x11) + ClockRecord(0, 1500, 0x12) +
                    ClockRecord(1, 4321, 0x11) + ClockRecord(1, 2500, 0x12) +
                    ClockRecord(0, 9000, 0x11));
  v1::LoadCounters& load = *request.add_loads();
  load.set_load_id(5);
  load.add_counters(0);
  load.add_counters(4);  // lost
  load.add_site_records(3);
  load.add_site_records(2);
  load.set_final(true);
  ASSERT_TRUE(agent_->Report(request).ok());

  const ProgramResult result = Ctl({"export", "--format", "perfetto"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("4 of 9 events have no record"));
  google::protobuf::Struct trace;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &trace).ok()) << result.out;
  std::multiset<std::string> spans, instants, names;
  for (const auto& value : trace.fields().at("traceEvents").list_value().values()) {
    const auto& event = value.struct_value().fields();
    const std::string phase = event.at("ph").string_value(), name = event.at("name").string_value();
    if (phase == "M") {
      names.insert(event.at("args").struct_value().fields().at("name").string_value());
      continue;
    }
    const std::string at =
        absl::StrCat(event.at("tid").number_value(), " ", event.at("ts").number_value());
    if (phase == "X") spans.insert(absl::StrCat(at, " ", event.at("dur").number_value()));
    if (phase == "i") instants.insert(at);
    EXPECT_EQ(event.at("args").struct_value().fields().at("attachment").string_value(), "a1");
    EXPECT_THAT(name, HasSubstr("add_one+0x"));
  }
  EXPECT_THAT(spans, ElementsAre("1 0 3.321", "2 0.5 1"));
  EXPECT_THAT(instants, ElementsAre("1 3.321", "1 8", "2 1.5"));
  EXPECT_EQ(names.count("wave 0x11, load 5, a1"), 1u);
}

// A kernel whose name is full of what each format gives a meaning to.
TEST_F(Reading, NamesOfKernelsAreTextEverywhere) {
  const std::string kernel = "<i>\"&';";
  std::string object = CodeObject();
  const std::string old = "add_one";
  ASSERT_EQ(kernel.size(), old.size());
  for (size_t at = 0; (at = object.find(old, at)) != std::string::npos; at += old.size()) {
    object.replace(at, old.size(), kernel);
  }
  daemon_.Attach("*", "global_*", "count-waves");
  agent_ = std::make_unique<Agent>(daemon_.agent_socket());
  ASSERT_TRUE(Load(*agent_, {1, 2, 4, 8}, true, object));

  const CsvRows rows = ParseCsv(Ctl({"report", "-o", "csv"}).out);
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(),
                          [&](const auto& row) { return row.at("kernel") == kernel; }),
            2);
  const std::string folded = Ctl({"export", "--format", "folded"}).out;
  EXPECT_THAT(folded, HasSubstr(";<i>\"&':;+0x"));
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/page.html";
  EXPECT_EQ(Ctl({"report", "--html", file}).exit_code, 0);
  const std::string page = ReadFile(file);
  EXPECT_THAT(page, ContainsRegex("<h2 id=\"k[12]\">&lt;i&gt;&quot;&amp;&#39;;</h2>"));
  EXPECT_THAT(page, Not(HasSubstr(kernel)));
}

}  // namespace
}  // namespace rjdbi::tests

int main(int argc, char** argv) {
  if (const char* socket = std::getenv("TEST_DIE_AFTER_COUNTING_ON")) {
    return rjdbi::tests::DieAfterCounting(socket);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
