// Loads a code object through every way ROCR offers, without HIP, and runs a
// kernel from it with an AQL packet.
//
//   hsa_loader_paths --code-object FILE [--kernel NAME] [--path P] [--load L]
//                    [--repeat N] [--elements N]
//
// --path: where the reader takes the bytes from
//     memory        hsa_code_object_reader_create_from_memory
//     file          hsa_code_object_reader_create_from_file
//     offset        ..._create_from_file_with_offset_size, from the loader's
//                   extension table by hsa_system_get_extension_table
//     offset-major  the same, by hsa_system_get_major_extension_table
// --load: current     hsa_executable_load_agent_code_object
//         deprecated  hsa_code_object_deserialize, hsa_executable_load_code_object
//                     (there is no reader; needs --path memory)
// --repeat: loads, runs and unloads that many times.
//
// The kernel takes (global uint* out, uint n) and stores i * 7 + 3 to out[i], in
// workgroups of 64. Prints "PASS <64-bit checksum of the results>" or "FAIL".
#include <fcntl.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define HSA_CHECK(call)                                                                      \
  do {                                                                                       \
    const hsa_status_t hsa_check_status = (call);                                            \
    if (hsa_check_status != HSA_STATUS_SUCCESS) {                                            \
      const char* text = "unknown";                                                          \
      hsa_status_string(hsa_check_status, &text);                                            \
      Die(std::string(#call) + ": " + text + " (" + std::to_string(hsa_check_status) + ")"); \
    }                                                                                        \
  } while (false)

namespace {

constexpr uint32_t kGroup = 64;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "hsa_loader_paths: %s\n", why.c_str());
  std::puts("FAIL");
  std::exit(1);
}

struct Options {
  std::string code_object, kernel = "loader_kernel", path = "memory", load = "current";
  int repeat = 1;
  uint32_t elements = 1000;
};

Options Parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--code-object") {
      o.code_object = value;
    } else if (name == "--kernel") {
      o.kernel = value;
    } else if (name == "--path") {
      o.path = value;
    } else if (name == "--load") {
      o.load = value;
    } else if (name == "--repeat") {
      o.repeat = std::atoi(value.c_str());
    } else if (name == "--elements") {
      o.elements = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 0));
    } else {
      Die("unknown option " + name);
    }
  }
  if (argc % 2 == 0) Die(std::string("option without a value: ") + argv[argc - 1]);
  if (o.code_object.empty()) Die("--code-object is needed");
  if (o.load != "current" && o.load != "deprecated") Die("unknown --load " + o.load);
  if (o.load == "deprecated" && o.path != "memory") Die("--load deprecated needs --path memory");
  return o;
}

std::vector<char> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) Die("cannot read " + path);
  // ROCR reads behind the end of objects that are cut off. What it finds there is no
  // accident of the heap's: pages of zeros, of an allocation of its own.
  constexpr size_t kBehind = 8 << 20;
  std::vector<char> bytes;
  bytes.reserve(static_cast<size_t>(info.st_size) + kBehind);
  bytes.resize(static_cast<size_t>(info.st_size));
  if (read(fd, bytes.data(), bytes.size()) != info.st_size) Die("cannot read " + path);
  close(fd);
  return bytes;
}

// A file in memory: `padding` bytes, then the code object, then `padding` more.
int MakeFile(const std::vector<char>& bytes, size_t padding) {
  const int fd = memfd_create("code-object", MFD_CLOEXEC);
  const std::vector<char> filler(padding, 'x');
  auto put = [fd](const std::vector<char>& data) {
    return write(fd, data.data(), data.size()) == static_cast<ssize_t>(data.size());
  };
  if (fd < 0 || !put(filler) || !put(bytes) || !put(filler)) Die("cannot make a file");
  return fd;
}

using OffsetReader = hsa_status_t (*)(hsa_file_t, size_t, size_t, hsa_code_object_reader_t*);

OffsetReader FindOffsetReader(bool major_query) {
  if (major_query) {
    hsa_ven_amd_loader_1_03_pfn_t table = {};
    HSA_CHECK(
        hsa_system_get_major_extension_table(HSA_EXTENSION_AMD_LOADER, 1, sizeof(table), &table));
    return table.hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size;
  }
  hsa_ven_amd_loader_1_02_pfn_t table = {};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  HSA_CHECK(hsa_system_get_extension_table(HSA_EXTENSION_AMD_LOADER, 1, 2, &table));
#pragma GCC diagnostic pop
  return table.hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size;
}

// What has to outlive the executable that was loaded from it.
struct Source {
  std::vector<char> bytes;
  int fd = -1;
  hsa_code_object_reader_t reader = {};
  hsa_code_object_t object = {};
};

Source MakeReader(const Options& o) {
  Source s;
  if (o.path == "memory") {
    s.bytes = ReadFile(o.code_object);
    HSA_CHECK(hsa_code_object_reader_create_from_memory(s.bytes.data(), s.bytes.size(), &s.reader));
  } else if (o.path == "file") {
    s.fd = open(o.code_object.c_str(), O_RDONLY);
    if (s.fd < 0) Die("cannot open " + o.code_object);
    HSA_CHECK(hsa_code_object_reader_create_from_file(s.fd, &s.reader));
  } else if (o.path == "offset" || o.path == "offset-major") {
    constexpr size_t kPadding = 4096;
    const std::vector<char> bytes = ReadFile(o.code_object);
    s.fd = MakeFile(bytes, kPadding);
    const OffsetReader create = FindOffsetReader(o.path == "offset-major");
    if (create == nullptr) Die("the extension table has no offset reader");
    HSA_CHECK(create(s.fd, kPadding, bytes.size(), &s.reader));
  } else {
    Die("unknown --path " + o.path);
  }
  return s;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
hsa_executable_t LoadDeprecated(const Options& o, hsa_agent_t agent, Source* s) {
  s->bytes = ReadFile(o.code_object);
  HSA_CHECK(hsa_code_object_deserialize(s->bytes.data(), s->bytes.size(), "", &s->object));
  hsa_executable_t executable;
  HSA_CHECK(
      hsa_executable_create(HSA_PROFILE_FULL, HSA_EXECUTABLE_STATE_UNFROZEN, "", &executable));
  HSA_CHECK(hsa_executable_load_code_object(executable, agent, s->object, ""));
  return executable;
}
#pragma GCC diagnostic pop

hsa_executable_t LoadCurrent(const Options& o, hsa_agent_t agent, Source* s) {
  *s = MakeReader(o);
  hsa_executable_t executable;
  HSA_CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                      nullptr, &executable));
  HSA_CHECK(hsa_executable_load_agent_code_object(executable, agent, s->reader, nullptr, nullptr));
  return executable;
}

void Unload(hsa_executable_t executable, Source* s) {
  HSA_CHECK(hsa_executable_destroy(executable));
  if (s->reader.handle != 0) HSA_CHECK(hsa_code_object_reader_destroy(s->reader));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  if (s->object.handle != 0) HSA_CHECK(hsa_code_object_destroy(s->object));
#pragma GCC diagnostic pop
  if (s->fd >= 0) close(s->fd);
}

struct Device {
  hsa_agent_t gpu = {}, cpu = {};
  hsa_amd_memory_pool_t host_pool = {};  // fine-grained system memory, kernel arguments
  hsa_queue_t* queue = nullptr;
};

hsa_status_t TakeAgent(hsa_agent_t agent, void* data) {
  auto* device = static_cast<Device*>(data);
  hsa_device_type_t type;
  HSA_CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
  hsa_agent_t* slot = type == HSA_DEVICE_TYPE_GPU ? &device->gpu : &device->cpu;
  if (slot->handle == 0) *slot = agent;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t TakePool(hsa_amd_memory_pool_t pool, void* data) {
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  HSA_CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
  if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
  HSA_CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT) {
    static_cast<Device*>(data)->host_pool = pool;
  }
  return HSA_STATUS_SUCCESS;
}

void OnQueueError(hsa_status_t status, hsa_queue_t*, void*) {
  const char* text = "unknown";
  hsa_status_string(status, &text);
  Die(std::string("queue error: ") + text);
}

Device OpenDevice() {
  Device device;
  HSA_CHECK(hsa_init());
  HSA_CHECK(hsa_iterate_agents(TakeAgent, &device));
  if (device.gpu.handle == 0) Die("no GPU");
  HSA_CHECK(hsa_amd_agent_iterate_memory_pools(device.cpu, TakePool, &device));
  if (device.host_pool.handle == 0) Die("no memory for kernel arguments");
  HSA_CHECK(hsa_queue_create(device.gpu, 64, HSA_QUEUE_TYPE_SINGLE, OnQueueError, nullptr,
                             UINT32_MAX, UINT32_MAX, &device.queue));
  return device;
}

void* Allocate(const Device& device, size_t size) {
  void* memory = nullptr;
  HSA_CHECK(hsa_amd_memory_pool_allocate(device.host_pool, size, 0, &memory));
  HSA_CHECK(hsa_amd_agents_allow_access(1, &device.gpu, nullptr, memory));
  std::memset(memory, 0, size);
  return memory;
}

struct KernelArguments {
  uint32_t* out;
  uint32_t n;
};

void Launch(const Device& device, hsa_executable_symbol_t symbol, void* arguments, uint32_t n) {
  hsa_kernel_dispatch_packet_t packet = {};
  HSA_CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT,
                                           &packet.kernel_object));
  HSA_CHECK(hsa_executable_symbol_get_info(
      symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &packet.group_segment_size));
  HSA_CHECK(hsa_executable_symbol_get_info(symbol,
                                           HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE,
                                           &packet.private_segment_size));
  packet.setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
  packet.workgroup_size_x = kGroup;
  packet.workgroup_size_y = packet.workgroup_size_z = 1;
  packet.grid_size_x = (n + kGroup - 1) / kGroup * kGroup;
  packet.grid_size_y = packet.grid_size_z = 1;
  packet.kernarg_address = arguments;
  HSA_CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  const uint16_t header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE |
                          HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                          HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
  const uint64_t index = hsa_queue_add_write_index_relaxed(device.queue, 1);
  auto* slot = static_cast<hsa_kernel_dispatch_packet_t*>(device.queue->base_address) +
               index % device.queue->size;
  packet.header = HSA_PACKET_TYPE_INVALID;
  std::memcpy(reinterpret_cast<char*>(slot) + sizeof(uint32_t),
              reinterpret_cast<char*>(&packet) + sizeof(uint32_t),
              sizeof(packet) - sizeof(uint32_t));
  slot->setup = packet.setup;
  __atomic_store_n(&slot->header, header, __ATOMIC_RELEASE);
  hsa_signal_store_screlease(device.queue->doorbell_signal, static_cast<int64_t>(index));
  hsa_signal_wait_scacquire(packet.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX,
                            HSA_WAIT_STATE_BLOCKED);
  HSA_CHECK(hsa_signal_destroy(packet.completion_signal));
}

// One load, run, unload. Adds the results to the checksum (FNV-1a).
void RunOnce(const Options& o, const Device& device, uint64_t* checksum) {
  Source source;
  const hsa_executable_t executable = o.load == "deprecated"
                                          ? LoadDeprecated(o, device.gpu, &source)
                                          : LoadCurrent(o, device.gpu, &source);
  HSA_CHECK(hsa_executable_freeze(executable, nullptr));
  hsa_executable_symbol_t symbol;
  const std::string name = o.kernel + ".kd";
  HSA_CHECK(hsa_executable_get_symbol_by_name(executable, name.c_str(), &device.gpu, &symbol));
  auto* out = static_cast<uint32_t*>(Allocate(device, o.elements * sizeof(uint32_t)));
  auto* arguments = static_cast<KernelArguments*>(Allocate(device, sizeof(KernelArguments)));
  *arguments = {out, o.elements};
  Launch(device, symbol, arguments, o.elements);
  for (uint32_t i = 0; i < o.elements; ++i) {
    if (out[i] != i * 7 + 3) Die("wrong at element " + std::to_string(i));
    for (int byte = 0; byte < 4; ++byte) {
      *checksum = (*checksum ^ (out[i] >> 8 * byte & 0xff)) * 0x100000001b3;
    }
  }
  HSA_CHECK(hsa_amd_memory_pool_free(out));
  HSA_CHECK(hsa_amd_memory_pool_free(arguments));
  Unload(executable, &source);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const Device device = OpenDevice();
  uint64_t checksum = 0xcbf29ce484222325;
  for (int i = 0; i < options.repeat; ++i) RunOnce(options, device, &checksum);
  HSA_CHECK(hsa_queue_destroy(device.queue));
  HSA_CHECK(hsa_shut_down());
  std::printf("PASS %016lx\n", checksum);
  return 0;
}
