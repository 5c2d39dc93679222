// From a load request to a substitute; see substitution.h.
#include "agent/substitution.h"

#include <cstdio>
#include <exception>
#include <utility>

#include "agent/sha256.h"

namespace rjdbi::agent {
namespace {

// How long a load may wait to hand over gaps of an outage that has just ended.
constexpr int64_t kGapDeliveryNs = 100 * kNsPerMs;

}  // namespace

GapKind GapKindOf(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kNone:
      return GapKind::kNone;
    case FaultKind::kUnreachable:
      return GapKind::kDaemonUnreachable;
    case FaultKind::kDeadline:
      return GapKind::kDeadlineExceeded;
    case FaultKind::kProtocol:
    case FaultKind::kRemote:
      return GapKind::kProtocolError;
    case FaultKind::kTooLarge:
      return GapKind::kObjectTooLarge;
    case FaultKind::kOutOfMemory:
      return GapKind::kOutOfMemory;
    case FaultKind::kUnreadable:
      return GapKind::kUnreadableObject;
    case FaultKind::kInterrupted:
      return GapKind::kNone;
  }
  return GapKind::kProtocolError;
}

void RecordGap(Runtime& runtime, Gap gap, GapKind kind, std::string detail) {
  gap.kind = kind;
  gap.detail = std::move(detail);
  runtime.gaps.Record(std::move(gap));
}

namespace {

bool IsGpu(const HelperCalls& hsa, hsa_agent_t agent) {
  hsa_device_type_t type;
  return hsa.hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type) == HSA_STATUS_SUCCESS &&
         type == HSA_DEVICE_TYPE_GPU;
}

// The agent's first ISA: the one its code objects are compiled for.
std::string IsaName(const HelperCalls& hsa, hsa_agent_t agent) {
  hsa_isa_t isa{};
  auto first = [](hsa_isa_t found, void* data) {
    *static_cast<hsa_isa_t*>(data) = found;
    return HSA_STATUS_INFO_BREAK;
  };
  hsa.hsa_agent_iterate_isas(agent, first, &isa);
  uint32_t length = 0;
  if (isa.handle == 0 ||
      hsa.hsa_isa_get_info_alt(isa, HSA_ISA_INFO_NAME_LENGTH, &length) != HSA_STATUS_SUCCESS) {
    return "";
  }
  std::string name(length + 1, '\0');  // some versions count the NUL, some do not
  if (hsa.hsa_isa_get_info_alt(isa, HSA_ISA_INFO_NAME, name.data()) != HSA_STATUS_SUCCESS) {
    return "";
  }
  return name.c_str();
}

uint32_t Node(const HelperCalls& hsa, hsa_agent_t agent) {
  uint32_t node = 0;
  hsa.hsa_agent_get_info(agent, HSA_AGENT_INFO_NODE, &node);
  return node;
}

}  // namespace

std::unique_ptr<PatchedLoad> BuildLoad(Runtime& runtime, const HelperCalls& hsa, hsa_agent_t agent,
                                       Decision decision, uint64_t original_delta,
                                       const Gap& identity) {
  auto load = std::make_unique<PatchedLoad>();
  load->load_id = identity.load_id;
  load->image = std::move(decision.image);
  if (decision.buffer.bytes() > 0) {
    std::string why;
    load->counters = CounterBuffer::Allocate(hsa, agent, decision.buffer, &why);
    if (!load->counters.allocated()) {
      RecordGap(runtime, identity, GapKind::kNoCounterMemory, why);
      return nullptr;
    }
    if (void* ring = load->counters.ring()) {
      const BufferLayout& layout = decision.buffer;
      load->ring = std::make_shared<LoadRing>(
          load->load_id, ring,
          RingReader::Shape{layout.ring_half_bytes, layout.ring_sites, layout.ring_record_sizes},
          runtime.batches);
    }
  }
  ApplyFixups(decision.fixups, load->counters.address(), original_delta, &load->image);
  return load;
}

namespace {

// Fills in `object` once it is known, `identity` as far as it is.
std::unique_ptr<Substitute> Prepare(Runtime& runtime, const HelperCalls& hsa,
                                    const LoadRequest& request, Gap* identity,
                                    std::unique_ptr<LoadedObject>* loaded) {
  if (!hsa.complete() || !IsGpu(hsa, request.agent)) return nullptr;
  const CodeObject& object = request.object;
  identity->load_id = runtime.next_load_id++;
  identity->origin = object.origin;
  identity->size = object.bytes.size;
  if (!request.known) {
    RecordGap(runtime, *identity, GapKind::kUnreadableObject,
              "its reader was made before the agent was in place");
    return nullptr;
  }
  if (!object.problem.empty()) {
    RecordGap(runtime, *identity, object.problem_kind, object.problem);
    return nullptr;
  }
  if (!object.owned && !IsReadable(object.bytes)) {
    RecordGap(runtime, *identity, GapKind::kUnreadableObject, "memory is not readable");
    return nullptr;
  }
  identity->digest = Sha256(object.bytes);
  identity->has_digest = true;

  ObjectHeader header;
  header.digest = identity->digest;
  header.size = object.bytes.size;
  header.origin = object.origin;
  header.load_id = identity->load_id;
  header.agent_isa = IsaName(hsa, request.agent);
  header.gpu_node = Node(hsa, request.agent);
  *loaded = std::make_unique<LoadedObject>(LoadedObject{.load_id = header.load_id,
                                                        .digest = header.digest,
                                                        .size = header.size,
                                                        .origin = header.origin,
                                                        .isa = header.agent_isa,
                                                        .gpu_node = header.gpu_node,
                                                        .agent = request.agent,
                                                        .executable = {},
                                                        .again = object.again,
                                                        .place = {},
                                                        .patched = false,
                                                        .generation = 0,
                                                        .session = 0});
  Decision decision;
  if (Fault fault = runtime.client.Admit(header, object.bytes, &decision); !fault.ok()) {
    RecordGap(runtime, *identity, GapKindOf(fault), fault.detail);
    return nullptr;
  }
  (*loaded)->generation = decision.generation;
  (*loaded)->session = runtime.client.session_number();
  if (runtime.gaps.HasPending()) runtime.reporter.DeliverGaps(kGapDeliveryNs, /*charge=*/true);
  if (decision.verdict != Verdict::kPatched) return nullptr;
  auto load = BuildLoad(runtime, hsa, request.agent, std::move(decision), 0, *identity);
  if (!load) return nullptr;
  auto substitute = std::make_unique<Substitute>();
  substitute->identity = *identity;
  substitute->load = std::move(load);
  return substitute;
}

}  // namespace

PreparedLoad PrepareLoad(Runtime& runtime, const HelperCalls& hsa,
                         const LoadRequest& request) noexcept {
  Gap identity;
  PreparedLoad prepared;
  try {
    prepared.substitute = Prepare(runtime, hsa, request, &identity, &prepared.object);
  } catch (const std::exception&) {
    identity.kind = GapKind::kOutOfMemory;
    runtime.gaps.Record(std::move(identity));
  }
  return prepared;
}

void NoteLoaded(Runtime& runtime, hsa_executable_t executable, hsa_loaded_code_object_t loaded,
                std::unique_ptr<LoadedObject> object) noexcept {
  const LiveCalls live = Live();
  if (!object || !runtime.config.live || !live.complete()) return;
  try {
    object->executable = executable;
    if (!FindPlace(live, executable, loaded, &object->place)) return;
    const uint64_t generation = object->generation;
    runtime.loaded.Add(std::move(*object));
    if (runtime.client.session_open()) runtime.watcher.Start();
    runtime.watcher.NoteLoaded(generation);
  } catch (const std::exception&) {
    runtime.gaps.Record(Gap{.kind = GapKind::kOutOfMemory, .detail = {}});
  }
}

void CommitSubstitute(Runtime& runtime, hsa_executable_t executable,
                      std::unique_ptr<Substitute> substitute) noexcept {
  const bool counts = substitute->load->counters.allocated();
  try {
    // Before anything runs: a ring that nobody drains is only read at its end.
    if (substitute->load->ring) runtime.drainer.Add(substitute->load->ring);
    runtime.loads.Add(executable.handle, substitute->load);
    if (counts) runtime.reporter.Start();
  } catch (const std::exception&) {
    // ROCR holds on to the image: better lost than freed under it.
    (void)substitute->load.release();
    substitute->identity.kind = GapKind::kOutOfMemory;
    runtime.gaps.Record(std::move(substitute->identity));
  }
}

void RejectSubstitute(Runtime& runtime, std::unique_ptr<Substitute> substitute, const char* step,
                      hsa_status_t status) noexcept {
  if (substitute->load->destroy_replacement) substitute->load->destroy_replacement();
  substitute->load->counters.Free();
  char detail[96];
  std::snprintf(detail, sizeof detail, "%s: HSA status 0x%x", step, static_cast<unsigned>(status));
  try {
    RecordGap(runtime, std::move(substitute->identity), GapKind::kPatchedLoadFailed, detail);
  } catch (const std::exception&) {
    runtime.gaps.Record(Gap{.kind = GapKind::kPatchedLoadFailed});
  }
}

void FinishLoads(Runtime& runtime, PatchedLoadList loads, bool runtime_is_up) noexcept {
  try {
    std::vector<LoadCounters> finals;
    for (auto& load : loads) {
      if (!load->counters.allocated()) continue;
      if (load->ring && runtime_is_up) load->ring->Finish(/*last=*/true);
      finals.push_back(runtime_is_up ? Snapshot(load.get(), /*final=*/true)
                                     : LastReported(load.get()));
    }
    runtime.reporter.Enqueue(std::move(finals));
  } catch (const std::exception&) {
    runtime.gaps.Record(Gap{.kind = GapKind::kOutOfMemory, .detail = {}});
  }
  if (!runtime_is_up) return;
  for (auto& load : loads) {
    if (load->destroy_replacement) load->destroy_replacement();
    load->counters.Free();
  }
}

}  // namespace rjdbi::agent
