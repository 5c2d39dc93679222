// What was decided last about each code object, so that it can be explained when the
// daemon that decided it is gone. Names decisions; the decisions themselves are the
// cache's, and may have left it.
#ifndef DAEMON_LAST_ADMISSIONS_H_
#define DAEMON_LAST_ADMISSIONS_H_

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/blob_store.h"
#include "daemon/decision.h"

namespace rjdbi::daemon {

class LastAdmissions {
 public:
  struct Entry {
    std::string sha256;            // of the object, hex
    std::string key;               // of the decision in the cache
    std::vector<std::string> ids;  // attachment "#i" was ids[i]
  };

  // `store` must outlive this.
  explicit LastAdmissions(BlobStore& store) : store_(store) {}

  // Writes only what is new.
  void Note(const Question& question, const std::string& key);
  // In the order of the hashes; entries that do not parse are left out.
  std::vector<Entry> All() const;

 private:
  BlobStore& store_;
  std::mutex mutex_;
  std::map<std::string, std::string> noted_;  // by name: what was written
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_LAST_ADMISSIONS_H_
