// What a patched object carries: the original comes back byte for byte, the map
// accounts for every instruction, and nothing foreign in the record is believed.
#include "contract/patch_record.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "contract/address_map.h"
#include "contract/admission.h"
#include "contract/catalogue.h"
#include "contract/inspect.h"
#include "patch/codeobject/appendix.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

constexpr char kSource[] = R"(
kernel void add(global int* a, global const int* b, int n) {
  local int tile[256];
  int i = __builtin_amdgcn_workitem_id_x();
  tile[i] = a[i];
  __builtin_amdgcn_s_barrier();
  for (int k = 0; k < n; ++k) a[i] += b[i + k] + tile[i ^ k];
}
kernel void scale(global double* a, double by) {
  a[__builtin_amdgcn_workitem_id_x()] *= by;
}
kernel void untouched(global int* a) { a[0] = 1; }
)";

v1::Attachment Attach(const std::string& kernel, const std::string& sites, const std::string& probe,
                      v1::Placement placement) {
  v1::Attachment a;
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites(sites);
  a.mutable_spec()->set_probe(probe);
  a.mutable_spec()->set_placement(placement);
  return a;
}

Admission AdmitAll(absl::Span<const uint8_t> object, std::vector<v1::Attachment> attachments) {
  for (size_t i = 0; i < attachments.size(); ++i) attachments[i].set_id(absl::StrCat("a", i + 1));
  auto rewriter = patch::MakeTrampolineRewriter();
  return WithDecisions(Admit(object, attachments, DefaultPolicy(), *rewriter));
}

std::vector<v1::Attachment> Usual(v1::Placement placement) {
  v1::Attachment after = Attach("add", "memory", "nop", placement);
  after.mutable_spec()->set_position(v1::AFTER);
  return {Attach("add", "*", "count-waves", placement), after,
          Attach("scale", "memory", "count-lanes", placement)};
}

using Variant = std::tuple<std::string, v1::Placement>;
class Patched : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    original_ = test::CompileOpenCl(std::get<0>(GetParam()), kSource);
    admission_ = AdmitAll(original_, Usual(std::get<1>(GetParam())));
    ASSERT_FALSE(admission_.patched.empty()) << admission_.record.ShortDebugString();
  }
  Bytes original_;
  Admission admission_;
};

TEST_P(Patched, GivesTheOriginalBack) {
  const auto opened = OpenPatched(admission_.patched);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_TRUE(opened->has_value());
  EXPECT_EQ((*opened)->original, original_);
  const v1::PatchRecord& record = (*opened)->record;
  EXPECT_EQ(record.engine_version(), EngineVersion());
  ASSERT_EQ(record.attachments_size(), 3);
  EXPECT_EQ(record.attachments(1).spec().position(), v1::AFTER);
  uint64_t sites = 0;
  for (const auto& attachment : record.attachments()) sites += attachment.sites();
  size_t attached = 0;
  for (const v1::Decision& d : admission_.record.decisions()) {
    attached +=
        d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
  }
  EXPECT_EQ(sites, attached);
  EXPECT_EQ(admission_.record.patched_size(), admission_.patched.size());
  EXPECT_FALSE(OpenPatched(original_)->has_value());
}

TEST_P(Patched, SymbolsNameTheNewCode) {
  const auto object = patch::CodeObject::Parse(admission_.patched);
  ASSERT_TRUE(object.ok()) << object.status();
  const auto map = AddressMap::Open(admission_.patched);
  ASSERT_TRUE(map.ok()) << map.status();
  const v1::AddressMap described = map->Describe("");
  ASSERT_EQ(described.kernels_size(), 2);
  for (const v1::MappedKernel& kernel : described.kernels()) {
    for (const v1::CodePiece& piece : kernel.pieces()) {
      const auto& symbols = object->code_symbols();
      const auto covers = [&](const patch::CodeSymbol& s) {
        return s.name.substr(0, kernel.kernel().size() + 6) == kernel.kernel() + ".rjdbi" &&
               s.vaddr <= piece.vaddr() && piece.vaddr() + piece.size() <= s.vaddr + s.size;
      };
      EXPECT_EQ(std::count_if(symbols.begin(), symbols.end(), covers), 1) << piece.vaddr();
    }
  }
}

// Every instruction of the kernels has a place, in which it is executed: the same
// bytes, but for what depends on the address or on its neighbours.
TEST_P(Patched, MapAccountsForEveryInstruction) {
  const auto map = AddressMap::Open(admission_.patched);
  ASSERT_TRUE(map.ok()) << map.status();
  const auto patched = patch::CodeObject::Parse(admission_.patched);
  test::Loaded loaded(original_);
  std::set<uint64_t> places;
  for (const char* name : {"add", "scale", "untouched"}) {
    const patch::KernelAnalysis& kernel = loaded.Kernel(name);
    for (const patch::Instruction& in : kernel.instructions()) {
      const auto answers = map->Resolve(absl::StrCat(name, "+0x", absl::Hex(in.offset)));
      ASSERT_TRUE(answers.ok() && answers->size() == 1) << answers.status();
      const v1::MappedPc& pc = answers->front();
      EXPECT_EQ(pc.kind(), v1::APPLICATION_CODE);
      EXPECT_EQ(pc.original_vaddr(), kernel.kernel().entry_vaddr + in.offset);
      EXPECT_TRUE(places.insert(pc.runs_at()).second);
      const bool depends = in.branch || in.is_clause || in.opcode == "s_delay_alu" ||
                           in.opcode == "s_addc_u32" || in.opcode == "s_add_u32" ||
                           in.opcode == "s_add_co_u32" || in.opcode == "s_add_co_ci_u32";
      const auto bytes = patched->AtVaddr(pc.runs_at(), in.size);
      const auto before = kernel.code().subspan(in.offset, in.size);
      EXPECT_TRUE(depends || std::equal(bytes.begin(), bytes.end(), before.begin(), before.end()))
          << name << "+" << in.offset << " " << in.opcode;
      // And back.
      const auto back = map->Resolve(absl::StrCat("0x", absl::Hex(pc.runs_at())));
      ASSERT_TRUE(back.ok() && back->size() == 1) << back.status();
      EXPECT_EQ(back->front().kind(), v1::APPLICATION_CODE) << in.opcode;
      EXPECT_EQ(back->front().kernel(), name);
      EXPECT_EQ(back->front().kernel_offset(), in.offset);
    }
  }
}

// Each sequence lies where the map says, with the attachment that it belongs to.
TEST_P(Patched, MapNamesAttachmentsAndSites) {
  const auto map = AddressMap::Open(admission_.patched);
  ASSERT_TRUE(map.ok()) << map.status();
  std::set<std::tuple<std::string, uint64_t, uint32_t>> mapped, decided;
  uint64_t words = 0;
  const v1::AddressMap described = map->Describe("");
  for (const v1::MappedKernel& kernel : described.kernels()) {
    uint64_t end = 0;
    for (const v1::CodePiece& piece : kernel.pieces()) {
      EXPECT_GE(piece.vaddr(), end);
      end = piece.vaddr() + piece.size();
      const auto there = map->Resolve(absl::StrCat("0x", absl::Hex(piece.vaddr() + 4)));
      ASSERT_TRUE(there.ok());
      if (piece.size() > 4) {
        EXPECT_EQ(there->front().attachment(), piece.attachment());
      }
      if (piece.kind() != v1::PROBE_CODE) continue;
      words += piece.size() / 4;
      mapped.insert({kernel.kernel(), piece.kernel_offset(), piece.attachment()});
    }
  }
  uint64_t instructions = 0;
  for (const v1::Decision& d : admission_.record.decisions()) {
    if (d.outcome() != v1::VERIFIED_ATTACH && d.outcome() != v1::ATTACH_WITH_DECLARED_DEGRADATION) {
      continue;
    }
    decided.insert({d.site().location().kernel(), d.site().location().kernel_offset(),
                    static_cast<uint32_t>(d.attachment_id()[1] - '0')});
    instructions += d.effects().instructions();
  }
  EXPECT_EQ(mapped, decided);
  EXPECT_GE(words, instructions);
}

TEST_P(Patched, AgainIsPatchedFromTheOriginal) {
  const std::vector<v1::Attachment> other = {
      Attach("*", "memory", "count-lanes", std::get<1>(GetParam()))};
  const Admission again = AdmitAll(admission_.patched, other);
  const Admission fresh = AdmitAll(original_, other);
  EXPECT_EQ(again.record.object_violations_size(), 0);
  EXPECT_EQ(again.patched, fresh.patched);
  EXPECT_NE(again.record.code_object_sha256(), fresh.record.code_object_sha256());
  EXPECT_EQ(again.record.prior_patch().original_sha256(), fresh.record.code_object_sha256());
  EXPECT_EQ(again.record.prior_patch().attachments_size(), 3);
  EXPECT_FALSE(fresh.record.has_prior_patch());
  // What could be asked for is what the original holds.
  const auto before = InspectSites(original_, "*", "*"),
             now = InspectSites(again.patched, "*", "*");
  ASSERT_TRUE(before.ok() && now.ok()) << now.status();
  EXPECT_EQ(before->SerializeAsString(), now->SerializeAsString());
}

INSTANTIATE_TEST_SUITE_P(Placements, Patched,
                         testing::Combine(testing::Values("gfx90a", "gfx942", "gfx1010", "gfx1030",
                                                          "gfx1201"),
                                          testing::Values(v1::CLONE, v1::TRAMPOLINE)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  v1::Placement_Name(std::get<1>(info.param));
                         });

// ---- Source lines ----------------------------------------------------------------------

std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  return text + "exit " + std::to_string(pclose(pipe));
}

// A file for the tools, gone afterwards.
class ToolFile {
 public:
  explicit ToolFile(const Bytes& bytes)
      : path_(absl::StrCat(testing::TempDir(), "lines-", getpid(), ".co")) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  ~ToolFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// "function\nfile:line" of an address, the file without its folder. Not by the tool's
// --basenames: that is the name as the table has it, which is a whole path where the
// compiler ran in a folder that shares only the root with the source.
std::string Symbolized(const Bytes& image, uint64_t vaddr, bool lines_only) {
  const ToolFile file(image);
  const std::vector<std::string> text =
      absl::StrSplit(Output(absl::StrCat(RJDBI_SYMBOLIZER, " --no-inlines --obj=", file.path(),
                                         " 0x", absl::Hex(vaddr))),
                     '\n');
  if (text.size() < 2) return "nothing";
  std::string place = text[1].substr(text[1].rfind('/') + 1);
  place.resize(place.rfind(':'));  // new code has no column
  return lines_only ? place : absl::StrCat(text[0], "\n", place);
}

using LineVariant = std::tuple<std::string, v1::Placement>;  // flags
class Lines : public testing::TestWithParam<LineVariant> {};

TEST_P(Lines, AreThoseOfTheOriginal) {
  const auto& [flags, placement] = GetParam();
  const Bytes original = test::CompileOpenCl("gfx1030" + flags, kSource);
  const Admission admission = AdmitAll(original, Usual(placement));
  ASSERT_FALSE(admission.patched.empty());
  EXPECT_EQ((*OpenPatched(admission.patched))->original, original);
  const auto map = AddressMap::Open(admission.patched);
  ASSERT_TRUE(map.ok()) << map.status();
  const auto before = patch::CodeObject::Parse(original),
             after = patch::CodeObject::Parse(admission.patched);
  const auto &old_lines = before->debug_info().lines(), &new_lines = after->debug_info().lines();
  ASSERT_TRUE(old_lines.ok() && new_lines.ok()) << new_lines.status();
  test::Loaded loaded(original);
  size_t compared = 0;
  uint64_t moved = 0;  // an address in new code
  for (const patch::Instruction& in : loaded.Kernel("add").instructions()) {
    const auto pc = map->Resolve(absl::StrCat("add+0x", absl::Hex(in.offset)))->front();
    const auto was = old_lines->Overlapping(pc.original_vaddr(), pc.original_vaddr() + 1);
    const auto is = new_lines->Overlapping(pc.runs_at(), pc.runs_at() + 1);
    ASSERT_EQ(was.size(), is.size());
    if (was.empty()) continue;
    EXPECT_EQ(was[0].line, is[0].line) << in.offset;
    EXPECT_EQ(old_lines->FileName(was[0]), new_lines->FileName(is[0]));
    if (pc.runs_at() != pc.original_vaddr() && was[0].line != 0) moved = pc.runs_at();
    ++compared;
  }
  EXPECT_GT(compared, 30u);
  const v1::AddressMap described = map->Describe("");
  for (const v1::MappedKernel& kernel : described.kernels()) {
    for (const v1::CodePiece& piece : kernel.pieces()) {
      if (piece.kind() == v1::APPLICATION_CODE) continue;
      // The site's line.
      const uint64_t site = kernel.original_vaddr() + piece.kernel_offset();
      const auto was = old_lines->Overlapping(site, site + 1);
      const auto rows = new_lines->Overlapping(piece.vaddr(), piece.vaddr() + piece.size());
      ASSERT_EQ(rows.size(), 1u) << piece.vaddr();
      EXPECT_EQ(rows[0].line, was.empty() ? 0u : was[0].line);
    }
  }
  // The tools agree.
  const ToolFile file(admission.patched);
  const std::string verified = Output(std::string(RJDBI_DWARFDUMP) + " --verify " + file.path());
  EXPECT_THAT(verified, HasSubstr("No errors.")) << verified;
  ASSERT_NE(moved, 0u);
  const uint64_t from =
      map->Resolve(absl::StrCat("0x", absl::Hex(moved)))->front().original_vaddr();
  EXPECT_EQ(Symbolized(admission.patched, moved, true), Symbolized(original, from, true));
  EXPECT_THAT(Symbolized(admission.patched, moved, false), HasSubstr("add.rjdbi"));
}

std::string LineVariantName(const testing::TestParamInfo<LineVariant>& info) {
  std::string flags;
  for (const char c : std::get<0>(info.param)) {
    if (c != ' ' && c != '-') flags += c;
  }
  return flags + "_" + v1::Placement_Name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Versions, Lines,
                         testing::Combine(testing::Values(" -g -gdwarf-4", " -g -gdwarf-5",
                                                          " -gline-tables-only"),
                                          testing::Values(v1::CLONE, v1::TRAMPOLINE)),
                         LineVariantName);

// ---- What is foreign -------------------------------------------------------------------

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    original_ = test::CompileOpenCl("gfx1030", kSource);
    patched_ = AdmitAll(original_, Usual(v1::TRAMPOLINE)).patched;
    const auto section = patch::FindSection(patched_, ".rjdbi");
    ASSERT_TRUE(section.has_value());
    begin_ = static_cast<size_t>(section->data() - patched_.data());
    size_ = section->size();
    record_ = (*OpenPatched(patched_))->record;
  }

  // The object with another record, checksum and all.
  Bytes With(const v1::PatchRecord& record) const {
    Bytes image = patched_;
    patch::Appendix appendix;
    appendix.sections.push_back({".rjdbi", SealRecord(record)});
    const absl::Status status = patch::Append(image, appendix, original_.size());
    EXPECT_TRUE(status.ok()) << status;
    return image;
  }

  Bytes original_, patched_;
  size_t begin_ = 0, size_ = 0;
  v1::PatchRecord record_;
};

TEST_F(Hostile, EveryDamagedByteIsNoticed) {
  for (size_t i = 0; i < size_; ++i) {
    Bytes image = patched_;
    image[begin_ + i] ^= 0x41;
    const auto opened = OpenPatched(image);
    EXPECT_TRUE(absl::IsDataLoss(opened.status()) || absl::IsUnimplemented(opened.status()))
        << "byte " << i << ": " << opened.status();
  }
  EXPECT_TRUE(OpenPatched(With(record_)).ok());
}

TEST_F(Hostile, ALaterFormatIsNamed) {
  Bytes image = patched_;
  image[begin_ + 8] = 2;
  const auto opened = OpenPatched(image);
  EXPECT_TRUE(absl::IsUnimplemented(opened.status()));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("format 2"));
}

TEST_F(Hostile, AChangedObjectIsNoticed) {
  Bytes image = patched_;
  image[original_.size() / 2] ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(OpenPatched(image).status()));
  const Admission admission = AdmitAll(image, Usual(v1::CLONE));
  EXPECT_TRUE(admission.patched.empty());
  ASSERT_EQ(admission.record.object_violations_size(), 1);
  EXPECT_EQ(admission.record.object_violations(0).constraint_id(), id::kPatchesStuck);
  EXPECT_THAT(admission.record.object_violations(0).message(), HasSubstr("SHA-256"));
  EXPECT_FALSE(InspectSites(image, "", "").ok());
}

TEST_F(Hostile, ARemovedRecordIsNoticed) {
  Bytes image = patched_;
  const std::string name(".rjdbi");
  // The name that is no prefix of another.
  auto at = image.begin();
  size_t renamed = 0;
  while ((at = std::search(at, image.end(), name.begin(), name.end())) != image.end()) {
    if (*(at + 6) == 0 && *(at - 1) == 0) *(at + 1) = 'x', ++renamed;
    ++at;
  }
  ASSERT_EQ(renamed, 1u);
  EXPECT_TRUE(absl::IsDataLoss(OpenPatched(image).status()));
}

TEST_F(Hostile, SizesThatDoNotAddUp) {
  const auto refused = [&](const char* what, auto change) {
    v1::PatchRecord record = record_;
    change(record);
    const Bytes image = With(record);
    EXPECT_TRUE(absl::IsDataLoss(AddressMap::Open(image).status())) << what;
  };
  auto& bytes = *record_.mutable_original_bytes();
  refused("size", [](auto& r) { r.set_original_size(UINT64_MAX); });
  refused("size 0", [](auto& r) { r.set_original_size(0); });
  refused("gap", [](auto& r) { r.mutable_original_bytes()->set_gaps(1, UINT32_MAX); });
  refused("run", [](auto& r) { r.mutable_original_bytes()->set_sizes(1, UINT32_MAX); });
  refused("columns", [](auto& r) { r.mutable_original_bytes()->add_gaps(1); });
  refused("bytes", [&](auto& r) {
    r.mutable_original_bytes()->set_bytes(bytes.bytes().substr(0, bytes.bytes().size() - 1));
  });
  refused("hash", [](auto& r) { r.set_original_sha256("x"); });
  refused("kernel", [](auto& r) { r.mutable_runs(0)->set_descriptor_vaddr(1); });
  refused("place", [](auto& r) { r.mutable_runs(0)->set_segment_offset(UINT64_MAX - 3); });
  refused("order", [](auto& r) { r.mutable_runs(1)->set_segment_offset(0); });
  refused("words", [](auto& r) { r.mutable_runs(0)->set_words(0, UINT32_MAX); });
  refused("no words", [](auto& r) { r.mutable_runs(0)->set_words(0, 0); });
  refused("owner", [](auto& r) { r.mutable_runs(0)->set_owners(0, 99); });
  refused("offset", [](auto& r) { r.mutable_runs(0)->set_originals(0, INT32_MIN); });
  refused("far offset", [](auto& r) { r.mutable_runs(0)->set_originals(0, INT32_MAX); });
  refused("column", [](auto& r) { r.mutable_runs(0)->add_owners(0); });
  refused("segment", [](auto& r) { r.set_segment_vaddr(UINT64_MAX); });
  refused("segment size", [](auto& r) { r.set_segment_size(UINT64_MAX); });
}

TEST_F(Hostile, RandomRecordsAreReadOrRefused) {
  const google::protobuf::LogSilencer silent;  // of strings that are not UTF-8
  std::mt19937 random(7);
  const std::string text = record_.SerializeAsString();
  size_t parsed = 0;
  for (int n = 0; n < 2000; ++n) {
    std::string mutated = text;
    for (uint32_t k = random() % 4 + 1; k > 0; --k) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    v1::PatchRecord record;
    if (!record.ParseFromString(mutated)) continue;
    ++parsed;
    // The original stays one, so that the map is reached.
    *record.mutable_original_bytes() = record_.original_bytes();
    record.set_original_sha256(record_.original_sha256());
    record.set_original_size(record_.original_size());
    const Bytes image = With(record);
    const auto map = AddressMap::Open(image);
    if (!map.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(map.status())) << map.status();
      continue;
    }
    EXPECT_GE(map->Describe("").segment_size(), 4u);
    EXPECT_TRUE(map->Resolve("0x3000").ok());
  }
  EXPECT_GT(parsed, 500u);
}

TEST_F(Hostile, QuestionsWithoutAnAnswer) {
  const auto map = AddressMap::Open(patched_);
  ASSERT_TRUE(map.ok());
  for (const char* asked : {"", "+", "+0x4", "nothing", "add+", "add+x", "0x", "-1", "add+-4"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(map->Resolve(asked).status())) << asked;
  }
  EXPECT_THAT(map->Resolve("add+0x100000")->front().note(), HasSubstr("behind"));
  EXPECT_EQ(map->Resolve("0xffffffffffffffff")->front().note(), "no code");
  EXPECT_EQ(map->Resolve("*")->size(), 3u);
  EXPECT_TRUE(absl::IsNotFound(AddressMap::Open(original_).status()));
}

}  // namespace
}  // namespace rjdbi::contract
