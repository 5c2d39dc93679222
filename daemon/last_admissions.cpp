// An entry is "last-<object>" in the cache: the key and the ids, a line each.
#include "daemon/last_admissions.h"

#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/digest.h"

namespace rjdbi::daemon {
namespace {

constexpr char kPrefix[] = "last-";
constexpr size_t kMostNoted = 1 << 14;  // objects; beyond, entries are written again

}  // namespace

void LastAdmissions::Note(const Question& question, const std::string& key) {
  const std::string name = absl::StrCat(kPrefix, Hex(question.sha256));
  std::string text = absl::StrCat(key, "\n", absl::StrJoin(question.ids, "\n"));
  {
    const std::lock_guard lock(mutex_);
    if (noted_.size() >= kMostNoted) noted_.clear();
    std::string& noted = noted_[name];
    if (noted == text && store_.Contains(name)) return;
    noted = text;
  }
  store_.Put(name, std::make_shared<const std::string>(std::move(text)));
}

std::vector<LastAdmissions::Entry> LastAdmissions::All() const {
  std::vector<Entry> entries;
  for (const std::string& name : store_.Names(kPrefix)) {
    const auto text = store_.Get(name);
    if (text == nullptr) continue;
    std::vector<std::string> lines = absl::StrSplit(*text, '\n');
    if (lines.size() < 2) continue;
    Entry& entry = entries.emplace_back();
    entry.sha256 = name.substr(sizeof(kPrefix) - 1);
    entry.key = std::move(lines.front());
    entry.ids.assign(std::make_move_iterator(lines.begin() + 1),
                     std::make_move_iterator(lines.end()));
  }
  return entries;
}

}  // namespace rjdbi::daemon
