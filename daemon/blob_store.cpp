#include "daemon/blob_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rjdbi::daemon {
namespace {

struct Header {
  char magic[8] = {'R', 'J', 'D', 'B', 'B', 'L', 'O', 'B'};
  uint32_t version = 2;
  uint32_t reserved = 0;
  uint64_t size = 0;
  char digest[16] = {};
};
static_assert(sizeof(Header) == 40);

constexpr char kTemporaryPrefix[] = ".tmp-";

// The name is part of the digest: a valid file under a wrong name is corrupt.
std::string DigestOf(const std::string& name, const std::string& payload) {
  const XXH64_hash_t seed = XXH3_64bits(name.data(), name.size());
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(payload.data(), payload.size(), seed));
  return {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)};
}

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool ReadAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = read(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

BlobStore::BlobStore(std::string directory, uint64_t max_bytes)
    : directory_(std::move(directory)), max_bytes_(max_bytes) {
  if (!directory_.empty()) Scan();
}

void BlobStore::Scan() {
  std::vector<std::tuple<timespec, std::string, uint64_t>> found;
  DIR* dir = opendir(directory_.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    struct stat info = {};
    if (fstatat(dirfd(dir), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode)) continue;
    if (absl::StartsWith(name, kTemporaryPrefix)) {
      unlinkat(dirfd(dir), name.c_str(), 0);
      continue;
    }
    found.emplace_back(info.st_mtim, name, static_cast<uint64_t>(info.st_size));
  }
  closedir(dir);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const timespec &x = std::get<0>(a), &y = std::get<0>(b);
    return std::tie(x.tv_sec, x.tv_nsec) < std::tie(y.tv_sec, y.tv_nsec);
  });
  const std::lock_guard lock(mutex_);
  for (auto& [time, name, size] : found) Insert({std::move(name), size, nullptr});
  Evict();
}

std::string BlobStore::PathOf(const std::string& name) const {
  return absl::StrCat(directory_, "/", name);
}

void BlobStore::Insert(Entry entry) {
  if (const auto old = index_.find(entry.name); old != index_.end()) {
    stats_.bytes -= old->second->size;
    order_.erase(old->second);
    index_.erase(old);
  }
  stats_.bytes += entry.size;
  order_.push_front(std::move(entry));
  index_[order_.front().name] = order_.begin();
  stats_.entries = index_.size();
}

void BlobStore::Erase(Order::iterator entry) {
  if (!directory_.empty()) unlink(PathOf(entry->name).c_str());
  stats_.bytes -= entry->size;
  index_.erase(entry->name);
  order_.erase(entry);
  stats_.entries = index_.size();
}

void BlobStore::Evict() {
  while (stats_.bytes > max_bytes_ && !order_.empty()) {
    Erase(std::prev(order_.end()));
    ++stats_.evicted;
  }
}

bool BlobStore::Contains(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return index_.count(name) != 0;
}

bool BlobStore::MoveToFront(const std::string& name) {
  const auto found = index_.find(name);
  if (found == index_.end()) return false;
  order_.splice(order_.begin(), order_, found->second);
  // The order of use survives a restart.
  if (!directory_.empty()) utimensat(AT_FDCWD, PathOf(name).c_str(), nullptr, 0);
  return true;
}

void BlobStore::Touch(const std::string& name) {
  const std::lock_guard lock(mutex_);
  MoveToFront(name);
}

std::shared_ptr<const std::string> BlobStore::Get(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (!MoveToFront(name)) return nullptr;
    if (directory_.empty()) return order_.front().payload;
  }
  if (std::shared_ptr<const std::string> payload = ReadFile(name)) return payload;
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;  // evicted in between: not corruption
  Erase(found->second);
  ++stats_.corrupt_dropped;
  spdlog::warn("cache entry {} failed verification and was dropped", name);
  return nullptr;
}

std::shared_ptr<const std::string> BlobStore::ReadFile(const std::string& name) const {
  const int fd = open(PathOf(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return nullptr;
  Header header;
  struct stat info = {};
  auto payload = std::make_shared<std::string>();
  bool ok = fstat(fd, &info) == 0 && ReadAll(fd, reinterpret_cast<char*>(&header), sizeof(header));
  ok = ok && std::memcmp(header.magic, Header().magic, sizeof(header.magic)) == 0 &&
       header.version == Header().version &&
       header.size + sizeof(header) == static_cast<uint64_t>(info.st_size);
  if (ok) {
    payload->resize(header.size);
    ok = ReadAll(fd, payload->data(), payload->size());
  }
  close(fd);
  if (!ok || DigestOf(name, *payload) != std::string(header.digest, sizeof(header.digest))) {
    return nullptr;
  }
  return payload;
}

// No fsync: an entry torn by a power cut fails verification and is dropped.
bool BlobStore::WriteFile(const std::string& name, const std::string& payload) {
  Header header;
  header.size = payload.size();
  DigestOf(name, payload).copy(header.digest, sizeof(header.digest));
  std::string temporary;
  {
    const std::lock_guard lock(mutex_);
    temporary = PathOf(absl::StrCat(kTemporaryPrefix, getpid(), "-", next_temporary_++));
  }
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  bool ok = WriteAll(fd, reinterpret_cast<const char*>(&header), sizeof(header)) &&
            WriteAll(fd, payload.data(), payload.size());
  int error = errno;
  if (close(fd) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (ok && rename(temporary.c_str(), PathOf(name).c_str()) != 0) {
    ok = false;
    error = errno;
  }
  if (!ok) {
    unlink(temporary.c_str());
    errno = error;
  }
  return ok;
}

void BlobStore::Put(const std::string& name, std::shared_ptr<const std::string> payload) {
  const uint64_t size = payload->size() + sizeof(Header);
  if (size > max_bytes_) return;
  if (!directory_.empty() && !WriteFile(name, *payload)) {
    const std::string problem = std::strerror(errno);
    const std::lock_guard lock(mutex_);
    if (stats_.write_failures++ == 0) {
      spdlog::warn("cannot write the cache in {}: {}; going on without", directory_, problem);
    }
    stats_.write_problem = problem;
    return;
  }
  // A copy: the caller's bytes may hold on to more than themselves.
  if (directory_.empty()) payload = std::make_shared<std::string>(*payload);
  const std::lock_guard lock(mutex_);
  stats_.write_problem.clear();
  Insert({name, size, directory_.empty() ? std::move(payload) : nullptr});
  Evict();
}

std::vector<std::string> BlobStore::Names(const std::string& prefix) const {
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : index_) {
      if (absl::StartsWith(name, prefix)) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

BlobStore::Stats BlobStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace rjdbi::daemon
