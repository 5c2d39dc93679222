// Reading what readers read, and naming it; see reader_registry.h.
#include "agent/reader_registry.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace rjdbi::agent {
namespace {

std::string Range(uint64_t offset, uint64_t size) {
  char text[64];
  std::snprintf(text, sizeof text, "#offset=0x%llx&size=%llu",
                static_cast<unsigned long long>(offset), static_cast<unsigned long long>(size));
  return text;
}

// RFC 3986 percent-encoding, as ROCR's own code object URIs use.
std::string EncodePath(const std::string& path) {
  static constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_.~-";
  std::string out;
  for (unsigned char c : path) {
    if (c != 0 && std::strchr(kPlain, c)) {
      out += static_cast<char>(c);
    } else {
      char escape[4];
      std::snprintf(escape, sizeof escape, "%%%02X", c);
      out += escape;
    }
  }
  return out;
}

std::string FileName(int fd) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : std::string();
}

CodeObject Unreadable(CodeObject object, GapKind kind, std::string problem) {
  object.bytes = {};
  object.problem_kind = kind;
  object.problem = std::move(problem);
  return object;
}

bool ReadRange(int fd, uint64_t offset, OwnedBytes* bytes) {
  for (size_t got = 0; got < bytes->size();) {
    ssize_t n =
        pread(fd, bytes->data() + got, bytes->size() - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return true;
}

CodeObject Own(CodeObject object, OwnedBytes bytes) {
  auto owned = std::make_shared<OwnedBytes>(std::move(bytes));
  object.bytes = owned->view();
  object.owned = std::move(owned);
  return object;
}

}  // namespace

CodeObject DescribeMemory(const void* data, size_t size) {
  CodeObject object;
  object.bytes = {static_cast<const uint8_t*>(data), size};
  object.again.memory = object.bytes;
  object.origin =
      "memory://" + std::to_string(getpid()) + Range(reinterpret_cast<uintptr_t>(data), size);
  return object;
}

CodeObject CopyMemory(const void* data, size_t size) {
  CodeObject object = DescribeMemory(data, size);
  if (!IsReadable(object.bytes)) {
    return Unreadable(std::move(object), GapKind::kUnreadableObject, "memory is not readable");
  }
  OwnedBytes bytes = OwnedBytes::Allocate(size);
  if (bytes.size() != size) return Unreadable(std::move(object), GapKind::kOutOfMemory, "copy");
  std::memcpy(bytes.data(), data, size);
  return Own(std::move(object), std::move(bytes));
}

CodeObject DescribeFile(int fd, uint64_t offset, uint64_t size) {
  CodeObject object;
  object.again.path = FileName(fd);
  object.again.offset = offset;
  object.origin = "file://" + EncodePath(object.again.path) + Range(offset, size);
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return Unreadable(std::move(object), GapKind::kUnreadableObject, "not a regular file");
  }
  auto file_size = static_cast<uint64_t>(status.st_size);
  if (size == 0 || offset > file_size || size > file_size - offset) {
    return Unreadable(std::move(object), GapKind::kUnreadableObject, "range outside the file");
  }
  OwnedBytes bytes = OwnedBytes::Allocate(size);
  if (bytes.size() != size) {
    return Unreadable(std::move(object), GapKind::kOutOfMemory, "copy of the file's range");
  }
  if (!ReadRange(fd, offset, &bytes)) {
    return Unreadable(std::move(object), GapKind::kUnreadableObject, "read failed");
  }
  return Own(std::move(object), std::move(bytes));
}

CodeObject DescribeWholeFile(int fd) {
  struct stat status;
  uint64_t size = fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  return DescribeFile(fd, 0, size);
}

namespace {

bool ReadFileAgain(const ByteOrigin& origin, OwnedBytes* bytes, std::string* why) {
  // Whatever has this name by now: it must not block us, nor become our terminal.
  const int fd = open(origin.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    *why = "the file cannot be opened any more";
    return false;
  }
  struct stat status;
  const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const bool read = regular && ReadRange(fd, origin.offset, bytes);
  close(fd);
  if (!read) *why = "the file is another one now, or shorter";
  return read;
}

// Through the kernel, which answers where a load would fault: the host may unmap the
// range at any moment.
bool ReadMemoryAgain(ByteView memory, OwnedBytes* bytes) {
  size_t got = 0;
  while (got < bytes->size()) {
    iovec local{bytes->data() + got, bytes->size() - got};
    iovec remote{const_cast<uint8_t*>(memory.data) + got, bytes->size() - got};
    const ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  if (got == bytes->size()) return true;
  if (got > 0 || (errno != EPERM && errno != ENOSYS)) return false;
  // Forbidden in this sandbox.
  const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool read = ReadRange(fd, reinterpret_cast<uintptr_t>(memory.data), bytes);
  close(fd);
  return read;
}

}  // namespace

bool ReadAgain(const ByteOrigin& origin, uint64_t size, OwnedBytes* bytes, std::string* why) {
  *bytes = OwnedBytes::Allocate(size);
  if (bytes->size() != size || size == 0) {
    *why = "no memory for " + std::to_string(size) + " bytes";
    return false;
  }
  if (!origin.path.empty()) return ReadFileAgain(origin, bytes, why);
  if (origin.memory.size == size && ReadMemoryAgain(origin.memory, bytes)) return true;
  *why = "the memory that it was loaded from is gone";
  return false;
}

bool IsReadable(ByteView bytes) {
  if (bytes.size == 0 || !bytes.data) return false;
  static constexpr size_t kBatch = 512;  // below IOV_MAX
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data);
  if (begin + (bytes.size - 1) < begin) return false;
  auto* const data = const_cast<uint8_t*>(bytes.data);  // what the calls' types want; only read
  const size_t into_page = begin & (page - 1);
  // One byte of each page, copied by the kernel, which answers where a load
  // would fault.
  iovec remote[kBatch];
  uint8_t sample[kBatch];
  for (size_t at = 0; at < bytes.size;) {
    size_t count = 0;
    while (count < kBatch && at < bytes.size) {
      remote[count++] = {data + at, 1};
      at += page - ((into_page + at) & (page - 1));
    }
    iovec local{sample, count};
    ssize_t got = process_vm_readv(getpid(), &local, 1, remote, count, 0);
    if (got == static_cast<ssize_t>(count)) continue;
    if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
      // Forbidden in this sandbox: at least the range is mapped.
      const size_t size = into_page + bytes.size;
      const size_t pages = (size + page - 1) / page;
      auto residency = OwnedBytes::Allocate(pages);
      return residency.size() == pages && mincore(data - into_page, size, residency.data()) == 0;
    }
    return false;
  }
  return true;
}

void ReaderRegistry::Add(uint64_t handle, CodeObject object) {
  std::lock_guard lock(mutex_);
  objects_.insert_or_assign(handle, std::move(object));
}

bool ReaderRegistry::Find(uint64_t handle, CodeObject* object) {
  std::lock_guard lock(mutex_);
  auto found = objects_.find(handle);
  if (found == objects_.end()) return false;
  *object = found->second;
  return true;
}

void ReaderRegistry::Remove(uint64_t handle) {
  std::lock_guard lock(mutex_);
  objects_.erase(handle);
}

size_t ReaderRegistry::size() {
  std::lock_guard lock(mutex_);
  return objects_.size();
}

}  // namespace rjdbi::agent
