// rjctl perturbation: what probes would cost, over the code objects of files,
// programs, libraries and folders. The same engine as admit's, many times.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "clients/verbs.h"
#include "contract/admission.h"
#include "contract/perturbation.h"
#include "patch/codeobject/code_object.h"
#include "patch/codeobject/mapped_file.h"
#include "patch/codeobject/offload_bundle.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "rjdbi/v1/perturbation.pb.h"

namespace rjdbi::clients {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr auto kProgressInterval = std::chrono::seconds(5);

// What was found, and the files that hold it.
class Collection {
 public:
  // A folder's files are looked through; a file has to hold something.
  void Add(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (absl::Status s = AddFile(path); !s.ok()) {
        problems_.push_back(absl::StrCat(path, ": ", s.message()));
      }
      return;
    }
    std::vector<std::string> files;
    auto walk = fs::recursive_directory_iterator(
        path, fs::directory_options::skip_permission_denied, error);
    for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
      std::error_code none;
      if (walk->is_regular_file(none)) files.push_back(walk->path().string());
    }
    if (error) problems_.push_back(absl::StrCat(path, ": ", error.message()));
    std::sort(files.begin(), files.end());
    bool some = false;
    for (const std::string& file : files) {
      if (AddFile(file).ok()) some = true;
    }
    if (!some) problems_.push_back(path + ": no file in it holds code objects");
  }

  // Keeps what is for one of the targets; returns how many were not.
  size_t Keep(const std::vector<std::string>& targets) {
    if (targets.empty()) return 0;
    const size_t before = objects_.size();
    std::erase_if(objects_, [&](const Object& object) {
      return std::none_of(targets.begin(), targets.end(), [&](const std::string& target) {
        return absl::StrContains(object.target, target);
      });
    });
    return before - objects_.size();
  }

  // Keeps so many, evenly spread; returns how many are left out.
  size_t Sample(size_t limit) {
    const size_t all = objects_.size();
    if (limit == 0 || all <= limit) return 0;
    std::vector<Object> kept;
    for (size_t n = 0; n < limit; ++n) kept.push_back(objects_[n * all / limit]);
    objects_ = std::move(kept);
    return all - limit;
  }

  struct Object {
    std::string target;
    absl::Span<const uint8_t> bytes;
  };
  const std::vector<Object>& objects() const { return objects_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  // Once, by whatever names.
  absl::Status AddFile(const std::string& path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) return absl::NotFoundError(std::strerror(errno));
    if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("not a regular file");
    if (info.st_size == 0) return absl::InvalidArgumentError("an empty file");
    if (known_.count({info.st_dev, info.st_ino}) != 0) return absl::OkStatus();
    auto file = patch::MappedFile::Open(path);
    if (!file.ok()) {
      return absl::Status(file.status().code(),
                          absl::StripPrefix(file.status().message(), path + ": "));
    }
    const absl::Span<const uint8_t> bytes = file->bytes();
    constexpr size_t kMachineOffset = 18;
    constexpr uint8_t kAmdgpu = 224;
    constexpr absl::string_view kElf = "\177ELF";
    const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (absl::StartsWith(text, kElf) && bytes.size() > kMachineOffset &&
        bytes[kMachineOffset] == kAmdgpu) {
      const auto parsed = patch::CodeObject::Parse(bytes);
      objects_.push_back({parsed.ok() ? parsed->target().ToString() : "", bytes});
    } else {
      const auto found = patch::ExtractBundles(bytes);
      if (!found.ok()) return found.status();
      if (found->empty()) return absl::NotFoundError("no code objects in it");
      for (const patch::BundledObject& o : *found) objects_.push_back({o.target, o.bytes});
    }
    files_.push_back(*std::move(file));
    known_.emplace(info.st_dev, info.st_ino);
    return absl::OkStatus();
  }

  std::list<patch::MappedFile> files_;
  std::set<std::pair<dev_t, ino_t>> known_;  // files_
  std::vector<Object> objects_;
  std::vector<std::string> problems_;
};

class Progress {
 public:
  Progress(const Output& out, size_t total) : out_(out), total_(total) {}
  void Done() {
    ++done_;
    if (Clock::now() < next_ || done_ == total_) return;
    next_ = Clock::now() + kProgressInterval;
    out_.Note(absl::StrCat(done_, " of ", total_, " admissions done"));
  }

 private:
  const Output& out_;
  const size_t total_;
  size_t done_ = 0;
  Clock::time_point next_ = Clock::now() + kProgressInterval;
};

bool NothingSelected(const v1::PerturbationReply& reply) {
  return std::all_of(reply.rows().begin(), reply.rows().end(), [](const v1::Perturbation& row) {
    return row.sites() == 0 && row.objects_refused() == 0;
  });
}

int ExitFor(const v1::PerturbationReply& reply) {
  uint64_t sites = 0, admitted = 0, bugs = 0, refused = 0;
  for (const v1::Perturbation& row : reply.rows()) {
    sites += row.sites();
    admitted += row.sites_admitted();
    bugs += row.kernels_undeclared_step();
    refused += row.objects_refused();
  }
  if (bugs > 0) return kInternal;
  if (admitted == 0) return kRefused;
  return admitted == sites && refused == 0 && reply.problems().empty() ? kOk : kPartial;
}

}  // namespace

int Perturbation(const Context& context, const PerturbationOptions& options) {
  contract::Policy policy = contract::DefaultPolicy();
  policy.allow_sabotage = true;  // as in admit
  std::vector<v1::Attachment> attachments;
  v1::AttachReply refused;
  std::set<std::string> seen;
  for (const std::string& probe : options.probes) {
    if (!seen.insert(probe).second) continue;
    v1::Attachment& attachment = attachments.emplace_back();
    attachment.set_id("a1");
    *attachment.mutable_spec() = options.spec;
    attachment.mutable_spec()->set_probe(probe);
    for (auto& violation : contract::CheckSpec(attachment.spec(), policy)) {
      *refused.add_violations() = std::move(violation);
    }
  }
  if (refused.violations_size() > 0) {
    if (context.out.json()) context.out.Json(refused);
    context.out.Violations(refused.violations());
    return kRefused;
  }
  Collection collection;
  for (const std::string& path : options.paths) collection.Add(path);
  v1::PerturbationReply reply;
  reply.set_objects_not_wanted(collection.Keep(options.targets));
  reply.set_objects_left_out(collection.Sample(options.limit));
  for (const std::string& problem : collection.problems()) {
    reply.add_problems(patch::ToUtf8(problem));
    context.out.Warn(Printable(problem));
  }
  if (collection.objects().empty()) {
    return context.out.FailUsage(absl::StrCat(
        "no code object to measure",
        reply.objects_not_wanted() > 0
            ? absl::StrCat(": none of ", reply.objects_not_wanted(), " is for the target")
            : ""));
  }
  contract::PerturbationTally tally;
  Progress progress(context.out, collection.objects().size() * attachments.size());
  for (const Collection::Object& object : collection.objects()) {
    for (const v1::Attachment& attachment : attachments) {
      const auto rewriter = patch::MakeTrampolineRewriter();
      tally.Add(attachment.spec().probe(), object.bytes,
                contract::Admit(object.bytes, {attachment}, policy, *rewriter));
      progress.Done();
    }
  }
  for (v1::Perturbation& row : tally.Rows()) *reply.add_rows() = std::move(row);
  if (context.out.json()) {
    context.out.Json(reply);
    return ExitFor(reply);
  }
  const char* separator = "";
  for (const v1::Perturbation& row : reply.rows()) {
    context.out.Print(separator + contract::RenderPerturbation(row));
    separator = "\n";
  }
  if (NothingSelected(reply)) {
    context.out.Note(
        "note: nothing of the objects is selected by --kernel and --sites; rjctl kernels FILE "
        "and rjctl sites FILE list what there is");
  }
  if (reply.objects_not_wanted() + reply.objects_left_out() > 0) {
    context.out.Note(absl::StrCat("note: ", reply.objects_not_wanted(),
                                  " objects are for other targets, ", reply.objects_left_out(),
                                  " were left out (--limit)"));
  }
  return ExitFor(reply);
}

}  // namespace rjdbi::clients
