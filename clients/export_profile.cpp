// Counts as folded stacks and as pprof's profile.
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "clients/export.h"
#include "clients/output.h"
#include "clients/pprof.pb.h"
#include "clients/report_rows.h"
#include "contract/demangle.h"
#include "contract/render.h"

namespace rjdbi::clients {
namespace {

constexpr int kMostWords = 16;  // of a user's probe: more sample types than that help nobody

// What the two formats say of a site.
struct Frames {
  std::string executable, kernel, source, instruction;
  SourceLine line;
};

class SiteFrames {
 public:
  explicit SiteFrames(const Collected& collected) : collected_(collected) {
    for (const v1::Session& session : collected.status.sessions()) {
      sessions_[session.id()] = &session;
    }
  }

  Frames Of(const v1::SiteCount& count) const {
    const v1::Location& at = count.location();
    Frames frames;
    const v1::Session* session = Session(count);
    frames.executable =
        session == nullptr ? "(processes no longer listed)" : Printable(session->executable());
    frames.kernel = at.kernel().empty() ? "(places no longer kept apart)"
                                        : Printable(contract::Demangle(at.kernel()));
    const auto line =
        collected_.lines.find({count.code_object_sha256(), at.kernel(), at.kernel_offset()});
    if (line != collected_.lines.end()) {
      frames.line = line->second;
      frames.source = absl::StrCat(Printable(line->second.file), ":", line->second.line);
    }
    frames.instruction =
        absl::StrFormat("+0x%x %s", at.kernel_offset(), Printable(at.instruction()));
    return frames;
  }

  const v1::Session* Session(const v1::SiteCount& count) const {
    const auto session = sessions_.find(count.session_id());
    return session == sessions_.end() ? nullptr : session->second;
  }

 private:
  const Collected& collected_;
  std::map<std::string, const v1::Session*> sessions_;
};

std::string Number(uint64_t n, const char* one, const char* more) {
  return absl::StrCat(n, n == 1 ? one : more);
}

// What every profile has to say of itself.
std::vector<std::string> LeftOut(const v1::GetReportReply& report) {
  uint64_t zero = 0, unfinished = 0;
  std::set<std::tuple<std::string, uint64_t, std::string, uint64_t, std::string>> seen;
  uint64_t twice = 0;
  for (const v1::SiteCount& count : report.counts()) {
    const bool any = count.count() > 0 || std::any_of(count.words().begin(), count.words().end(),
                                                      [](uint64_t word) { return word > 0; });
    zero += any ? 0 : 1;
    unfinished += count.final() ? 0 : 1;
    if (any && !seen.insert({count.session_id(), count.load_id(), count.location().kernel(),
                             count.location().kernel_offset(), UnitOf(count.probe())})
                    .second) {
      ++twice;
    }
  }
  std::vector<std::string> notes;
  if (zero > 0) {
    notes.push_back(Number(zero, " count is zero and", " counts are zero and") + " not in it");
  }
  if (unfinished > 0) {
    notes.push_back(Number(unfinished, " count is a lower bound", " counts are lower bounds") +
                    ": processes still run, or were killed");
  }
  if (twice > 0) {
    notes.push_back(
        Number(twice, " place is", " places are") +
        " counted by several attachments, and in it as often (--attachment chooses one)");
  }
  return notes;
}

// Compressed as gzip does.
absl::StatusOr<std::string> Gzip(const std::string& bytes) {
  z_stream stream = {};
  constexpr int kGzip = 16, kMemory = 8;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::InternalError("zlib does not start");
  }
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError("zlib did not finish");
  return out;
}

// A profile as it grows. Ids begin at 1.
class Profile {
 public:
  Profile() { Text(""); }

  int64_t Text(const std::string& text) {
    const auto [found, fresh] = texts_.emplace(text, profile_.string_table_size());
    if (fresh) profile_.add_string_table(text);
    return found->second;
  }

  void SampleType(const std::string& name, const std::string& unit) {
    pprof::ValueType& type = *profile_.add_sample_type();
    type.set_type(Text(name));
    type.set_unit(Text(unit));
  }

  void Add(const v1::SiteCount& count, const Frames& frames, const v1::Session* session,
           const std::vector<int64_t>& values) {
    const v1::Location& at = count.location();
    const std::string kernel(contract::WithoutSignature(frames.kernel));
    const std::string& object = count.code_object_sha256();
    const uint64_t start = at.code_object_vaddr() - at.kernel_offset();
    const uint64_t mapping = Mapping(object, at.code_object_vaddr(), !frames.source.empty());
    pprof::Sample& sample = *profile_.add_sample();
    // The name has the kernel's in it: viewers add up functions of equal names.
    sample.add_location_id(
        Location({object, at.code_object_vaddr(), frames.instruction}, mapping,
                 Function(absl::StrCat(kernel, frames.instruction), at.kernel(), frames.line.file),
                 frames.line.line));
    sample.add_location_id(Location({object, start, frames.kernel}, mapping,
                                    Function(frames.kernel, at.kernel(), frames.line.file), 0));
    sample.add_location_id(
        Location({"", 0, frames.executable}, 0, Function(frames.executable, "", ""), 0));
    sample.mutable_value()->Add(values.begin(), values.end());
    Label(sample, "attachment", count.attachment_id());
    Label(sample, "probe", Printable(count.probe()));
    if (session == nullptr) return;
    Label(sample, "session", session->id());
    pprof::Label& pid = *sample.add_label();
    pid.set_key(Text("pid"));
    pid.set_num(session->pid());
  }

  void Comment(const std::string& text) { profile_.add_comment(Text(Printable(text))); }

  std::string Finish() {
    profile_.set_time_nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count());
    return profile_.SerializeAsString();
  }

 private:
  uint64_t Mapping(const std::string& sha256, uint64_t address, bool lines) {
    const auto [found, fresh] = mappings_.emplace(sha256, profile_.mapping_size());
    if (fresh) profile_.add_mapping()->set_id(static_cast<uint64_t>(profile_.mapping_size()));
    pprof::Mapping& mapping = *profile_.mutable_mapping(found->second);
    mapping.set_filename(Text(absl::StrCat("code object ", sha256.substr(0, 12))));
    mapping.set_build_id(Text(sha256));
    // As far as is known from its sites.
    mapping.set_memory_limit(std::max(mapping.memory_limit(), address + 1));
    mapping.set_has_functions(true);
    mapping.set_has_filenames(mapping.has_filenames() || lines);
    mapping.set_has_line_numbers(mapping.has_line_numbers() || lines);
    return mapping.id();
  }

  uint64_t Function(const std::string& name, const std::string& system_name,
                    const std::string& file) {
    const auto [found, fresh] =
        functions_.emplace(std::tuple(name, system_name, file), profile_.function_size() + 1);
    if (!fresh) return found->second;
    pprof::Function& function = *profile_.add_function();
    function.set_id(found->second);
    function.set_name(Text(name));
    function.set_system_name(Text(Printable(system_name.empty() ? name : system_name)));
    function.set_filename(Text(Printable(file)));
    return found->second;
  }

  uint64_t Location(const std::tuple<std::string, uint64_t, std::string>& place, uint64_t mapping,
                    uint64_t function, uint32_t line) {
    const auto [found, fresh] = locations_.emplace(place, profile_.location_size() + 1);
    if (!fresh) return found->second;
    pprof::Location& location = *profile_.add_location();
    location.set_id(found->second);
    location.set_mapping_id(mapping);
    location.set_address(std::get<1>(place));
    location.add_line()->set_function_id(function);
    location.mutable_line(0)->set_line(line);
    return found->second;
  }

  void Label(pprof::Sample& sample, const std::string& key, const std::string& value) {
    pprof::Label& label = *sample.add_label();
    label.set_key(Text(key));
    label.set_str(Text(value));
  }

  pprof::Profile profile_;
  std::map<std::string, int> texts_, mappings_;
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> functions_;
  std::map<std::tuple<std::string, uint64_t, std::string>, uint64_t> locations_;
};

// The sample types, and which of them a probe's first word is; further words follow.
struct Types {
  std::vector<std::string> names;
  std::map<std::string, size_t> of_unit;
};

Types TypesOf(const v1::GetReportReply& report) {
  std::map<std::string, int> words;
  for (const v1::SiteCount& count : report.counts()) {
    int& most = words[UnitOf(count.probe())];
    most = std::max({most, 1, std::min(count.words_size(), kMostWords)});
  }
  if (words.empty()) words["wavefronts"] = 1;  // a profile has to have one
  Types types;
  for (const auto& [unit, n] : words) {
    types.of_unit[unit] = types.names.size();
    types.names.push_back(Printable(unit));
    for (int word = 1; word < n; ++word) {
      types.names.push_back(absl::StrCat(Printable(unit), ".", word));
    }
  }
  return types;
}

// pprof's numbers have a sign.
int64_t Signed(uint64_t count, uint64_t& too_large) {
  if (count <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(count);
  ++too_large;
  return INT64_MAX;
}

}  // namespace

absl::StatusOr<Exported> FoldedStacks(const Collected& collected) {
  std::set<std::string> units;
  std::map<std::string, uint64_t> stacks;
  const SiteFrames sites(collected);
  uint64_t words = 0;
  for (const v1::SiteCount& count : collected.report.counts()) {
    units.insert(UnitOf(count.probe()));
    words += count.words_size() > 1 ? 1 : 0;
    if (count.count() == 0) continue;
    const Frames frames = sites.Of(count);
    std::string stack;
    for (const std::string* frame :
         {&frames.executable, &frames.kernel, &frames.source, &frames.instruction}) {
      if (frame->empty()) continue;
      absl::StrAppend(&stack, stack.empty() ? "" : ";", absl::StrReplaceAll(*frame, {{";", ":"}}));
    }
    stacks[stack] += count.count();
  }
  if (units.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("folded stacks have one kind of count, and these are of ",
                     absl::StrJoin(units, ", "), ": choose with --attachment, or export pprof"));
  }
  Exported out;
  for (const auto& [stack, count] : stacks) absl::StrAppend(&out.bytes, stack, " ", count, "\n");
  out.left_out = LeftOut(collected.report);
  if (words > 0) {
    out.left_out.push_back(
        Number(words, " place has", " places have") +
        " further words of a user's probe, which are not in it: folded stacks have one number");
  }
  return out;
}

absl::StatusOr<Exported> PprofProfile(const Collected& collected) {
  const Types types = TypesOf(collected.report);
  const SiteFrames sites(collected);
  Profile profile;
  for (const std::string& name : types.names) profile.SampleType(name, "count");
  uint64_t too_large = 0, many_words = 0;
  for (const v1::SiteCount& count : collected.report.counts()) {
    std::vector<int64_t> values(types.names.size());
    const size_t first = types.of_unit.at(UnitOf(count.probe()));
    values[first] = Signed(count.count(), too_large);
    for (int word = 1; word < std::min(count.words_size(), kMostWords); ++word) {
      values[first + static_cast<size_t>(word)] = Signed(count.words(word), too_large);
    }
    many_words += count.words_size() > kMostWords ? 1 : 0;
    if (std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 0; })) {
      continue;
    }
    profile.Add(count, sites.Of(count), sites.Session(count), values);
  }
  Exported out;
  out.left_out = LeftOut(collected.report);
  if (too_large > 0) {
    out.left_out.push_back(Number(too_large, " number is", " numbers are") +
                           " larger than pprof's, and in it as the largest");
  }
  if (many_words > 0) {
    out.left_out.push_back(absl::StrCat("of ", Number(many_words, " place", " places"),
                                        " only the first ", kMostWords, " words are in it"));
  }
  profile.Comment(contract::RenderTotal(collected.report.coverage().total()));
  for (const std::string& note : out.left_out) profile.Comment(note);
  auto bytes = Gzip(profile.Finish());
  if (!bytes.ok()) return bytes.status();
  out.bytes = std::move(*bytes);
  return out;
}

}  // namespace rjdbi::clients
