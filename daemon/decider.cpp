#include "daemon/decider.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "contract/demangle.h"
#include "contract/inspect.h"
#include "daemon/digest.h"
#include "patch/codeobject/code_object.h"
#include "patch/rewrite/trampoline_rewriter.h"

namespace rjdbi::daemon {
namespace {

// Lookups read and verify files; a few at a time keep the disk busy.
constexpr uint32_t kLookupThreads = 4;

std::string DecisionName(const std::string& key) { return absl::StrCat("decision-", key); }
std::string ObjectName(const std::string& hex) { return absl::StrCat("object-", hex); }
std::string KernelsName(const std::string& hex) { return absl::StrCat("kernels-", hex); }

bool AnyKernelMatches(const v1::ListKernelsReply& kernels, const Question& question) {
  std::set<std::string> globs;
  for (const auto& attachment : question.wanted) globs.insert(attachment.spec().kernel_glob());
  for (const v1::KernelSummary& kernel : kernels.kernels()) {
    const contract::KernelName name(kernel.name());
    for (const std::string& glob : globs) {
      if (name.Matches(glob)) return true;
    }
  }
  return false;
}

}  // namespace

Decider::Decider(BlobStore& store, uint32_t threads)
    : store_(store), last_(store), lookups_(kLookupThreads), workers_(threads) {}

void Decider::Stop() {
  lookups_.Stop();
  workers_.Stop();
}

Decider::Stats Decider::stats() const { return {hits_.load(), misses_.load()}; }

Bytes Decider::StoredObject(const std::string& hex) { return store_.Get(ObjectName(hex)); }

void Decider::ForEachLast(
    const std::function<bool(const std::string&)>& wanted,
    const std::function<void(const LastAdmissions::Entry&, DecisionPtr)>& take) {
  for (const LastAdmissions::Entry& entry : last_.All()) {
    if (!wanted(entry.sha256)) continue;
    DecisionPtr decision = FromCache(entry.key);
    if (decision == nullptr || decision->record.code_object_sha256() != entry.sha256) continue;
    take(entry, std::move(decision));
  }
}

std::shared_ptr<const v1::ListKernelsReply> Decider::KnownKernels(const std::string& hex) {
  const Bytes bytes = store_.Get(KernelsName(hex));
  auto reply = std::make_shared<v1::ListKernelsReply>();
  if (bytes == nullptr || !reply->ParseFromString(*bytes)) return nullptr;
  return reply;
}

DecisionPtr Decider::Shared(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = shared_.find(key);
  return found == shared_.end() ? nullptr : found->second.lock();
}

DecisionPtr Decider::Share(const std::string& key, DecisionPtr decision) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const Decision>& known = shared_[key];
  if (DecisionPtr first = known.lock()) return first;
  known = decision;
  if (shared_.size() >= sweep_at_) {
    std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(sweep_at_, 2 * shared_.size());
  }
  return decision;
}

DecisionPtr Decider::FromCache(const std::string& key) {
  const std::string name = DecisionName(key);
  if (DecisionPtr shared = Shared(key)) {
    if (store_.Contains(name)) {
      store_.Touch(name);
    } else {  // evicted, or the disk was full
      store_.Put(name, std::make_shared<std::string>(Encode(*shared)));
    }
    return shared;
  }
  const Bytes bytes = store_.Get(name);
  if (bytes == nullptr) return nullptr;
  std::optional<Decision> decision = DecodeDecision(bytes);
  if (!decision.has_value()) return nullptr;
  return Share(key, std::make_shared<Decision>(std::move(*decision)));
}

// The object is known well enough to say that nothing in it is asked for.
DecisionPtr Decider::WithoutBytes(const Question& question) {
  const std::string hex = Hex(question.sha256);
  const auto kernels = KnownKernels(hex);
  if (kernels == nullptr || AnyKernelMatches(*kernels, question)) return nullptr;
  auto decision = std::make_shared<Decision>();
  decision->record.set_code_object_sha256(hex);
  decision->record.set_engine_version(contract::EngineVersion());
  decision->record.set_kernels(static_cast<uint32_t>(kernels->kernels_size()));
  return decision;
}

bool Decider::Join(const std::string& key, Callback done) {
  const std::lock_guard lock(mutex_);
  std::vector<Callback>& waiting = in_progress_[key];
  waiting.push_back(std::move(done));
  return waiting.size() == 1;
}

void Decider::Answer(const std::string& key, const absl::StatusOr<DecisionPtr>& answer) {
  std::vector<Callback> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(in_progress_[key]);
    in_progress_.erase(key);
  }
  for (const Callback& done : waiting) done(answer);
}

void Decider::Lookup(std::shared_ptr<const Question> question, const contract::Policy& policy,
                     Callback done) {
  lookups_.Submit(
      [=, this, question = std::move(question), done = std::move(done)](bool cancelled) mutable {
        if (cancelled) return done(absl::UnavailableError("rjdbid is shutting down"));
        const std::string key = question->Key(policy);
        DecisionPtr decision = FromCache(key);
        if (decision != nullptr) last_.Note(*question, key);
        if (decision == nullptr) decision = WithoutBytes(*question);
        if (decision != nullptr) {
          ++hits_;
          return done(std::move(decision));
        }
        ++misses_;
        if (Bytes object = StoredObject(Hex(question->sha256))) {
          return Decide(std::move(question), policy, std::move(object), std::move(done));
        }
        done(DecisionPtr());
      });
}

void Decider::Decide(std::shared_ptr<const Question> question, const contract::Policy& policy,
                     Bytes object, Callback done) {
  std::string key = question->Key(policy);
  if (!Join(key, std::move(done))) return;
  workers_.Submit([=, this, question = std::move(question), object = std::move(object),
                   key = std::move(key)](bool cancelled) {
    if (cancelled) return Answer(key, absl::UnavailableError("rjdbid is shutting down"));
    Compute(key, question, policy, object);
  });
}

void Decider::Compute(const std::string& key, std::shared_ptr<const Question> question,
                      const contract::Policy& policy, Bytes object) {
  if (DecisionPtr known = FromCache(key)) return Answer(key, known);
  const auto start = std::chrono::steady_clock::now();
  const std::string hex = Hex(question->sha256);
  const std::unique_ptr<patch::Rewriter> rewriter = patch::MakeTrampolineRewriter();
  contract::Admission admission =
      contract::Admit(AsBytes(*object), question->wanted, policy, *rewriter);
  auto decision = std::make_shared<Decision>();
  decision->record = std::move(admission.record);
  decision->storage =
      std::make_shared<const std::string>(admission.patched.begin(), admission.patched.end());
  decision->patched = *decision->storage;
  decision->fixups = std::move(admission.fixups);
  decision->switches = std::move(admission.switches);
  // With more time the answer would be another: whoever asks next asks anew.
  const bool keep = !decision->record.cut_short();
  if (keep) {
    store_.Put(DecisionName(key), std::make_shared<std::string>(Encode(*decision)));
    last_.Note(*question, key);
  }
  if (!store_.Contains(ObjectName(hex))) store_.Put(ObjectName(hex), object);
  if (!store_.Contains(KernelsName(hex))) {
    if (const auto parsed = patch::CodeObject::Parse(AsBytes(*object)); parsed.ok()) {
      store_.Put(KernelsName(hex), std::make_shared<std::string>(
                                       contract::SummariseKernels(*parsed).SerializeAsString()));
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  spdlog::info("code object {} ({} bytes, {}): {} in {:.3f} s", hex.substr(0, 12), object->size(),
               decision->record.isa(), Summarise(decision->record), took.count());
  Answer(key, keep ? Share(key, std::move(decision)) : DecisionPtr(std::move(decision)));
}

}  // namespace rjdbi::daemon
