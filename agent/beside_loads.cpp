// Placing images beside loaded objects and letting them go; see beside_loads.h.
#include "agent/beside_loads.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "agent/runtime.h"
#include "agent/substitution.h"

namespace rjdbi::agent {
namespace {

// For a thread of the host that is in its handler, or waits for room in its queue there.
constexpr int64_t kGatesNs = 5 * kNsPerMs;

constexpr size_t kEntryOffset = 16;  // in a kernel descriptor: of its code, from itself

// What ROCR made of an image.
struct Loaded {
  hsa_code_object_reader_t reader{};
  hsa_executable_t executable{};
  LoadPlace place;
};

// The step that failed, or nullptr.
const char* LoadImage(const LiveCalls& hsa, const LoadedObject& original, const OwnedBytes& image,
                      Loaded* loaded, hsa_status_t* status) {
  hsa_profile_t profile = HSA_PROFILE_FULL;
  hsa_default_float_rounding_mode_t rounding = HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT;
  hsa.hsa_executable_get_info(original.executable, HSA_EXECUTABLE_INFO_PROFILE, &profile);
  hsa.hsa_executable_get_info(original.executable, HSA_EXECUTABLE_INFO_DEFAULT_FLOAT_ROUNDING_MODE,
                              &rounding);
  *status =
      hsa.hsa_code_object_reader_create_from_memory(image.data(), image.size(), &loaded->reader);
  if (*status != HSA_STATUS_SUCCESS) return "reader for the image beside";
  *status = hsa.hsa_executable_create_alt(profile, rounding, nullptr, &loaded->executable);
  if (*status != HSA_STATUS_SUCCESS) return "executable for the image beside";
  hsa_loaded_code_object_t where{};
  *status = hsa.hsa_executable_load_agent_code_object(loaded->executable, original.agent,
                                                      loaded->reader, nullptr, &where);
  if (*status != HSA_STATUS_SUCCESS) return "load of the image beside";
  *status = hsa.hsa_executable_freeze(loaded->executable, nullptr);
  if (*status != HSA_STATUS_SUCCESS) return "freezing the image beside";
  if (!FindPlace(hsa, loaded->executable, where, &loaded->place)) {
    return "finding the image beside";
  }
  return nullptr;
}

void Unload(const LiveCalls& hsa, const Loaded& loaded) {
  if (loaded.executable.handle != 0) hsa.hsa_executable_destroy(loaded.executable);
  if (loaded.reader.handle != 0) hsa.hsa_code_object_reader_destroy(loaded.reader);
}

// With everything that takes memory.
std::vector<Direction> Undirected(size_t count) {
  std::vector<Direction> directions(count);
  for (Direction& direction : directions) direction.counts = std::make_shared<DispatchCounts>();
  return directions;
}

// False: not between two descriptors of what is loaded.
bool Direct(const KernelSwitch& from, const LoadPlace& original, const LoadPlace& image,
            Direction* direction) {
  direction->original = original.delta + from.original_descriptor;
  direction->descriptor = image.delta + from.descriptor;
  direction->private_segment_bytes = from.private_segment_bytes;
  direction->group_segment_bytes = from.group_segment_bytes;
  return original.HoldsDescriptor(direction->original) &&
         image.HoldsDescriptor(direction->descriptor);
}

}  // namespace

BesideLoads::~BesideLoads() = default;

// ---- Placing ----

bool BesideLoads::LoadBeside(const LiveCalls& hsa, const LoadedObject& object, Decision decision,
                             const Gap& identity, Image* image) {
  const std::vector<KernelSwitch> switches = std::move(decision.switches);
  std::vector<Direction> directions = Undirected(switches.size());
  auto load = BuildLoad(runtime_, Helpers(), object.agent, std::move(decision), object.place.delta,
                        identity);
  if (!load) return false;
  Loaded loaded;
  hsa_status_t status = HSA_STATUS_SUCCESS;
  const auto give_up = [&](GapKind kind, const char* why) {
    Unload(hsa, loaded);
    load->counters.Free();
    char detail[96];
    std::snprintf(detail, sizeof detail, "%s: HSA status 0x%x", why, static_cast<unsigned>(status));
    RecordGap(runtime_, identity, kind, detail);
    return false;
  };
  if (const char* step = LoadImage(hsa, object, load->image, &loaded, &status)) {
    return give_up(GapKind::kPatchedLoadFailed, step);
  }
  for (size_t i = 0; i < switches.size(); ++i) {
    if (!Direct(switches[i], object.place, loaded.place, &directions[i])) {
      return give_up(GapKind::kProtocolError, "a switch between what are no kernels");
    }
  }
  const auto destroy = hsa.hsa_code_object_reader_destroy;
  try {
    load->destroy_replacement = [destroy, reader = loaded.reader] { destroy(reader); };
    if (load->ring) runtime_.drainer.Add(load->ring);
    const bool counts = load->counters.allocated();
    runtime_.loads.Add(loaded.executable.handle, load);
    if (counts) runtime_.reporter.Start();
  } catch (const std::exception&) {
    if (load) {
      if (load->ring) load->ring->Finish(/*last=*/true);
      give_up(GapKind::kOutOfMemory, "image beside");
    }
    return false;
  }
  image->executable = loaded.executable;
  image->directions = std::move(directions);
  return true;
}

bool BesideLoads::Restore(const LoadedObject& object, const std::vector<KernelRestore>& restores,
                          const Gap& identity, Image* image) {
  const LoadPlace& place = object.place;
  std::vector<Direction> directions = Undirected(restores.size());
  static_assert(kDescriptorBytes % sizeof(uint64_t) == 0);
  BufferLayout layout;
  layout.counter_count =
      static_cast<uint32_t>(restores.size() * (kDescriptorBytes / sizeof(uint64_t)));
  std::string why;
  image->descriptors = CounterBuffer::Allocate(Helpers(), object.agent, layout, &why);
  if (!image->descriptors.allocated()) {
    RecordGap(runtime_, identity, GapKind::kNoCounterMemory, why);
    return false;
  }
  for (size_t i = 0; i < restores.size(); ++i) {
    const KernelRestore& restore = restores[i];
    const uint64_t address = image->descriptors.address() + i * kDescriptorBytes;
    const uint64_t code = place.delta + restore.code;
    directions[i].original = place.delta + restore.descriptor;
    directions[i].descriptor = address;
    if (!place.HoldsDescriptor(directions[i].original) || !place.Holds(code)) {
      image->descriptors.Free();
      RecordGap(runtime_, identity, GapKind::kProtocolError,
                "an original kernel that is none of the loaded object");
      return false;
    }
    auto* to = reinterpret_cast<uint8_t*>(address);
    const uint64_t entry = code - address;
    std::memcpy(to, restore.original.data(), restore.original.size());
    std::memcpy(to + kEntryOffset, &entry, sizeof entry);
  }
  image->directions.insert(image->directions.end(), directions.begin(), directions.end());
  return true;
}

std::unique_ptr<BesideLoads::Image> BesideLoads::Make(const LiveCalls& hsa,
                                                      const LoadedObject& object, Decision decision,
                                                      const Gap& identity) {
  auto image = std::make_unique<Image>();
  image->original = object.load_id;
  image->original_executable = object.executable.handle;
  const std::vector<KernelRestore> restores = std::move(decision.restores);
  if (!restores.empty() && !Restore(object, restores, identity, image.get())) return nullptr;
  if (decision.verdict != Verdict::kPatched || decision.switches.empty()) return image;
  bool loaded = false;
  try {
    image->directions.reserve(restores.size() + decision.switches.size());
    std::vector<Direction> restored = std::move(image->directions);
    loaded = LoadBeside(hsa, object, std::move(decision), identity, image.get());
    if (loaded) image->directions.insert(image->directions.end(), restored.begin(), restored.end());
  } catch (const std::exception&) {
    Destroy(hsa, std::move(image));
    throw;
  }
  if (loaded) return image;
  Destroy(hsa, std::move(image));
  return nullptr;
}

void BesideLoads::Publish() {
  std::vector<Direction> list;
  for (const auto& [load_id, image] : images_) {
    if (image) list.insert(list.end(), image->directions.begin(), image->directions.end());
  }
  std::unique_ptr<const Directions> next;
  if (!list.empty()) next = std::make_unique<Directions>(std::move(list), tables_ + 1);
  old_tables_.reserve(old_tables_.size() + 1);
  ++tables_;
  for (const auto& [load_id, image] : images_) {
    if (image && image->first_table == 0) image->first_table = tables_;
  }
  if (auto old = runtime_.switches.Exchange(std::move(next))) {
    old_tables_.push_back(std::move(old));
  }
}

void BesideLoads::Apply(const LoadedObject& object, Decision decision, uint64_t load_id) {
  std::lock_guard lock(mutex_);
  const LiveCalls hsa = Live();
  LoadedObject now;
  // The host may have destroyed it while the daemon was asked.
  if (held_ || !hsa.complete() || !runtime_.loaded.Find(object.load_id, &now)) {
    return NeverLoaded(decision, load_id);
  }
  const Gap identity{.kind = GapKind::kNone,
                     .has_digest = true,
                     .digest = object.digest,
                     .size = object.size,
                     .origin = object.origin,
                     .detail = {},
                     .unix_ns = 0,
                     .load_id = load_id};
  const bool wanted = !decision.restores.empty() ||
                      (decision.verdict == Verdict::kPatched && !decision.switches.empty());
  if (!wanted) NeverLoaded(decision, load_id);
  const auto found = images_.find(object.load_id);
  if (!wanted && found == images_.end()) return;
  leaving_.reserve(leaving_.size() + 1);
  std::unique_ptr<Image>& slot = images_[object.load_id];
  const auto tidy = [&] {
    if (!slot) images_.erase(object.load_id);
  };
  std::unique_ptr<Image> other;  // the new one; then the one that goes
  bool swapped = false;
  try {
    if (wanted) other = Make(hsa, now, std::move(decision), identity);
    if (wanted && !other) return tidy();
    slot.swap(other);
    swapped = true;
    Publish();
  } catch (const std::exception&) {
    if (swapped) slot.swap(other);
    if (other) Destroy(hsa, std::move(other));
    tidy();
    throw;
  }
  if (other) leaving_.push_back({std::move(other), false, {}});
  tidy();
}

// ---- Letting go ----

void BesideLoads::Destroy(const LiveCalls& hsa, std::unique_ptr<Image> image) noexcept {
  if (image->executable.handle != 0) {
    PatchedLoadList loads = runtime_.loads.Take(image->executable.handle);
    hsa.hsa_executable_destroy(image->executable);
    FinishLoads(runtime_, std::move(loads), /*runtime_is_up=*/true);
  }
  image->descriptors.Free();
}

bool BesideLoads::LetGo() {
  std::lock_guard lock(mutex_);
  if (leaving_.empty() && old_tables_.empty()) return false;
  const LiveCalls hsa = Live();
  if (held_ || !hsa.complete() || !runtime_.queues.AllGatesEmptyOnce(Deadline::After(kGatesNs))) {
    return true;
  }
  old_tables_.clear();
  for (Leaving& leaving : leaving_) {
    if (!leaving.asked) {
      runtime_.queues.AskForFences(leaving.image->first_table, &leaving.fences);
      leaving.asked = true;
    }
    auto& fences = leaving.fences;
    fences.erase(
        std::remove_if(fences.begin(), fences.end(),
                       [&](const Fence& fence) { return runtime_.queues.IsPassed(fence); }),
        fences.end());
    if (fences.empty()) Destroy(hsa, std::move(leaving.image));
  }
  leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(),
                                [](const Leaving& leaving) { return !leaving.image; }),
                 leaving_.end());
  return !leaving_.empty();
}

// ---- In the host's calls ----

bool BesideLoads::BeforeDestroy(hsa_executable_t executable) noexcept {
  std::lock_guard lock(mutex_);
  try {
    std::vector<LoadedObject> objects = runtime_.loaded.Take(executable.handle);
    if (objects.empty()) return false;
    leaving_.reserve(leaving_.size() + objects.size());
    bool changed = false;
    for (const LoadedObject& object : objects) {
      const auto found = images_.find(object.load_id);
      if (found == images_.end()) continue;
      leaving_.push_back({std::move(found->second), false, {}});
      images_.erase(found);
      changed = true;
    }
    if (changed) Publish();
    being_destroyed_[executable.handle] = std::move(objects);
    return true;
  } catch (const std::exception&) {
    // Without memory for a table there is none: everything goes to the originals.
    (void)runtime_.switches.Exchange(nullptr).release();
    return true;
  }
}

void BesideLoads::AfterDestroy(hsa_executable_t executable, bool destroyed) noexcept {
  std::lock_guard lock(mutex_);
  std::vector<LoadedObject> objects;
  const auto found = being_destroyed_.find(executable.handle);
  if (found != being_destroyed_.end()) {
    objects = std::move(found->second);
    being_destroyed_.erase(found);
  }
  if (!destroyed) {
    try {
      for (LoadedObject& object : objects) {
        object.generation = 0;
        runtime_.loaded.Add(std::move(object));
      }
    } catch (const std::exception&) {
    }
    runtime_.watcher.Poke();
    return;
  }
  const LiveCalls hsa = Live();
  if (held_ || !hsa.complete()) return;
  for (Leaving& leaving : leaving_) {
    if (leaving.image->original_executable != executable.handle) continue;
    Destroy(hsa, std::move(leaving.image));
  }
  leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(),
                                [](const Leaving& leaving) { return !leaving.image; }),
                 leaving_.end());
}

void BesideLoads::Hold(bool hold) {
  std::lock_guard lock(mutex_);
  held_ = hold;
}

void BesideLoads::RuntimeIsGone() noexcept {
  std::lock_guard lock(mutex_);
  // Threads of the host may still be in a handler: tables are left, not freed.
  (void)runtime_.switches.Exchange(nullptr).release();
  for (auto& table : old_tables_) (void)table.release();
  old_tables_.clear();
  images_.clear();
  leaving_.clear();
  being_destroyed_.clear();
  runtime_.loaded.Clear();
  runtime_.queues.Forget();
}

// What the daemon has decided for nothing: a load that counted nothing.
void BesideLoads::NeverLoaded(const Decision& decision, uint64_t load_id) {
  if (decision.verdict != Verdict::kPatched) return;
  LoadCounters none;
  none.load_id = load_id;
  none.sequence = 1;
  none.counters.resize(decision.buffer.counter_count);
  none.final = true;
  runtime_.reporter.Enqueue({none});
  runtime_.reporter.Start();
}

bool BesideLoads::Has(uint64_t load_id) {
  std::lock_guard lock(mutex_);
  return images_.count(load_id) != 0;
}

uint64_t BesideLoads::switched() {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [load_id, image] : images_) {
    for (const Direction& direction : image->directions) sum += direction.counts->switched();
  }
  return sum;
}

size_t BesideLoads::images() {
  std::lock_guard lock(mutex_);
  return images_.size();
}

size_t BesideLoads::leaving() {
  std::lock_guard lock(mutex_);
  return leaving_.size();
}

}  // namespace rjdbi::agent
