// Content-addressed store of byte strings: decisions, code objects, kernel
// lists. On disk when there is a directory, in memory when there is none;
// bounded by least-recent use; every read is verified.
//
// File: 8 bytes magic "RJDBBLOB", u32 version (2), u32 zero, u64 payload size, 16 bytes
// XXH3 of the payload, seeded with that of the name, payload. Little-endian. The sum finds
// torn and damaged files, not forgeries: whoever can write here is rjdbid (decisions/0015).
#ifndef DAEMON_BLOB_STORE_H_
#define DAEMON_BLOB_STORE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace rjdbi::daemon {

class BlobStore {
 public:
  struct Stats {
    uint64_t bytes = 0, entries = 0;
    uint64_t corrupt_dropped = 0;  // failed verification on read
    uint64_t write_failures = 0;   // disk full and kin
    uint64_t evicted = 0;
    std::string write_problem;  // of the last write; empty: it succeeded
  };

  // directory "": in memory. Leftovers of an interrupted write are removed.
  BlobStore(std::string directory, uint64_t max_bytes);

  // nullptr: absent, or was corrupt and is now dropped.
  std::shared_ptr<const std::string> Get(const std::string& name);
  bool Contains(const std::string& name) const;
  // As if it had been read.
  void Touch(const std::string& name);
  // Never fails visibly: a store that cannot write is a cache that misses.
  void Put(const std::string& name, std::shared_ptr<const std::string> payload);
  // Names that start with `prefix`, sorted.
  std::vector<std::string> Names(const std::string& prefix) const;
  Stats stats() const;

 private:
  struct Entry {
    std::string name;
    uint64_t size = 0;                           // with header
    std::shared_ptr<const std::string> payload;  // memory only
  };
  using Order = std::list<Entry>;  // most recently used first

  void Scan();
  // With mutex_ held, false: absent.
  bool MoveToFront(const std::string& name);
  std::string PathOf(const std::string& name) const;
  bool WriteFile(const std::string& name, const std::string& payload);
  std::shared_ptr<const std::string> ReadFile(const std::string& name) const;
  // With mutex_ held.
  void Insert(Entry entry);
  void Erase(Order::iterator entry);
  void Evict();

  const std::string directory_;
  const uint64_t max_bytes_;
  mutable std::mutex mutex_;
  Order order_;
  std::unordered_map<std::string, Order::iterator> index_;
  Stats stats_;
  uint64_t next_temporary_ = 0;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_BLOB_STORE_H_
