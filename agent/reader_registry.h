// Which bytes stand behind each code object reader: ROCR's handles do not tell.
//
// Memory readers: HSA requires the bytes to stay valid until the reader is
// destroyed, so they are only pointed at. File readers: ROCR maps the range when
// the reader is made, and programs do close the descriptor right after; so the
// range is read into memory of our own at that moment, once, and dropped with
// the reader.
#ifndef RJDBI_AGENT_READER_REGISTRY_H_
#define RJDBI_AGENT_READER_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "agent/types.h"

namespace rjdbi::agent {

// Where bytes can be read once more when nobody owes us that they are still there:
// at an address of the host's, or in a file.
struct ByteOrigin {
  ByteView memory;
  std::string path;  // not empty: in this file
  uint64_t offset = 0;
};

struct CodeObject {
  ByteView bytes;
  ByteOrigin again;
  std::shared_ptr<const OwnedBytes> owned;  // set when the bytes are our copy
  std::string origin;   // URI: file://path#offset=..&size=.. or memory://pid#offset=..&size=..
  std::string problem;  // not empty: the bytes could not be had, and why
  GapKind problem_kind = GapKind::kUnreadableObject;
};

// What a reader on memory, or on `size` bytes at `offset` of an open file, reads.
CodeObject DescribeMemory(const void* data, size_t size);
CodeObject DescribeFile(int fd, uint64_t offset, uint64_t size);
CodeObject DescribeWholeFile(int fd);
// A copy of memory that may go away.
CodeObject CopyMemory(const void* data, size_t size);

// Reads `size` bytes anew, into memory of our own; false, with a reason, if they are not
// there. What is there may be something else by now: the caller compares hashes.
bool ReadAgain(const ByteOrigin& origin, uint64_t size, OwnedBytes* bytes, std::string* why);

// Whether every page of the range can be read. Wrong sizes are the host's bug,
// but one that must not turn into a crash of ours.
bool IsReadable(ByteView bytes);

// Handle to code object. Thread-safe; may throw std::bad_alloc.
class ReaderRegistry {
 public:
  void Add(uint64_t handle, CodeObject object);
  bool Find(uint64_t handle, CodeObject* object);
  void Remove(uint64_t handle);
  size_t size();

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, CodeObject> objects_;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_READER_REGISTRY_H_
