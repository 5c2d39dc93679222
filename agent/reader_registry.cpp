// Reading what readers read, and naming it; see reader_registry.h.
#include "agent/reader_registry.h"

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
  object.origin = "file://" + EncodePath(FileName(fd)) + Range(offset, size);
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
