// See bench_objects.h.
#include "tests/bench/bench_objects.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/corpus/offload_bundle.h"

extern char** environ;

namespace rjdbi::bench {
namespace {

constexpr size_t kLargeBelow = 4'000'000;  // bytes

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "error: %s\n", why.c_str());
  std::exit(1);
}

// Removed with everything in it when the program ends.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rjdbi-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) Die("no temporary folder");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const std::vector<test::BundledObject>& LibraryObjects() {
  static const auto* library = [] {
    auto file = test::MappedFile::Open(RJDBI_ROCSPARSE);
    if (!file.ok()) Die(file.status().ToString());
    return new test::MappedFile(*std::move(file));
  }();
  static const auto* objects = [] {
    auto found = test::ExtractBundles(library->bytes());
    if (!found.ok()) Die(found.status().ToString());
    return new std::vector<test::BundledObject>(*std::move(found));
  }();
  return *objects;
}

// By size.
std::vector<absl::Span<const uint8_t>> ObjectsFor(const std::string& target) {
  std::vector<absl::Span<const uint8_t>> own;
  for (const auto& object : LibraryObjects()) {
    const bool matches = object.target.find("--" + target) != std::string::npos;
    // The soft GPU runs with XNACK off, and ROCR refuses objects built for it on.
    const bool loads = object.target.find("xnack+") == std::string::npos;
    if (matches && loads) own.push_back(object.bytes);
  }
  if (own.empty()) Die("librocsparse has no object for " + target);
  std::stable_sort(own.begin(), own.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return own;
}

absl::Span<const uint8_t> Choose(const std::string& target, const std::string& size_class) {
  const std::vector<absl::Span<const uint8_t>> own = ObjectsFor(target);
  if (size_class == "small") return own[own.size() / 10];
  if (size_class == "median") return own[own.size() / 2];
  if (size_class == "largest") return own.back();
  auto above =
      std::find_if(own.begin(), own.end(), [](const auto& o) { return o.size() >= kLargeBelow; });
  if (size_class != "large" || above == own.begin()) Die("no object is called " + size_class);
  return *--above;
}

const BenchObject& Keep(const std::string& target, const std::string& size_class,
                        absl::Span<const uint8_t> bytes) {
  static Folder folder;
  static std::map<std::string, BenchObject> made;
  BenchObject& object = made[target + "-" + size_class];
  if (!object.file.empty()) return object;
  object.target = target;
  object.size_class = size_class;
  object.bytes = bytes;
  object.file = folder.path() + "/" + target + "-" + size_class + ".co";
  std::ofstream out(object.file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(object.bytes.data()),
            static_cast<std::streamsize>(object.bytes.size()));
  if (!out.flush()) Die("cannot write " + object.file);
  return object;
}

}  // namespace

const BenchObject& FindObject(const std::string& target, const std::string& size_class) {
  return Keep(target, size_class, Choose(target, size_class));
}

std::vector<BenchObject> EveryObject(const std::string& target, size_t every) {
  std::vector<BenchObject> objects;
  const std::vector<absl::Span<const uint8_t>> own = ObjectsFor(target);
  for (size_t i = own.size(); i > 0; i -= std::min(i, every)) {
    objects.push_back(Keep(target, std::to_string(i - 1), own[i - 1]));
  }
  std::reverse(objects.begin(), objects.end());
  return objects;
}

RunResult Run(const std::vector<std::string>& command, const std::vector<std::string>& environment,
              bool keep_output) {
  std::vector<std::string> variables = environment;
  for (char** e = environ; *e != nullptr; ++e) variables.emplace_back(*e);
  std::vector<char*> argv, envp;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  for (std::string& v : variables) envp.push_back(v.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  RunResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (keep_output) {
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  const double start = Seconds();
  pid_t pid = -1;
  const bool started = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data()) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char buffer[1 << 16];
  for (ssize_t n; started && (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    result.out.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  struct rusage usage = {};
  if (!started || wait4(pid, &status, 0, &usage) != pid) return result;
  for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
    result.cpu_seconds += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  }
  result.seconds = Seconds() - start;
  result.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return result;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuSeconds() {
  timespec t = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

int Rounds(int normal) {
  const char* text = std::getenv("RJDBI_BENCH_ROUNDS");
  const int rounds = text != nullptr ? std::atoi(text) : 0;
  return rounds > 0 ? rounds : normal;
}

}  // namespace rjdbi::bench
