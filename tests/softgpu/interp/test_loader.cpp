#include "tests/softgpu/interp/test_loader.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "llvm/Config/llvm-config.h"

namespace softgpu {
namespace {

constexpr uint16_t kEmAmdgpu = 224;
constexpr size_t kPage = 4096;

// A record of the file, or nothing when it lies outside.
template <typename T>
std::optional<T> At(std::span<const uint8_t> file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

std::string NameAt(std::span<const uint8_t> file, uint64_t offset) {
  std::string name;
  while (offset < file.size() && file[offset] != 0) name += static_cast<char>(file[offset++]);
  return name;
}

bool IsCodeObject(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == kEmAmdgpu;
}

std::vector<Elf64_Phdr> LoadSegments(std::span<const uint8_t> file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Phdr> segments;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment && segment->p_type == PT_LOAD) segments.push_back(*segment);
  }
  return segments;
}

void ReadSymbols(std::span<const uint8_t> file, const Elf64_Ehdr& header, uint64_t bias,
                 std::map<std::string, uint64_t, std::less<>>& out) {
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto table = At<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!table || (table->sh_type != SHT_SYMTAB && table->sh_type != SHT_DYNSYM)) continue;
    const auto strings = At<Elf64_Shdr>(file, header.e_shoff + table->sh_link * sizeof(Elf64_Shdr));
    if (!strings) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = At<Elf64_Sym>(file, table->sh_offset + at);
      if (!symbol || symbol->st_shndx == SHN_UNDEF || symbol->st_name == 0) continue;
      out[NameAt(file, strings->sh_offset + symbol->st_name)] = bias + symbol->st_value;
    }
  }
}

// R_AMDGPU_ABS64 and R_AMDGPU_RELATIVE64 (LLVM's AMDGPUUsage, "Relocation Records"), of
// sections that are loaded. False: there is another one, or it lies outside.
bool Relocate(std::span<const uint8_t> file, const Elf64_Ehdr& header, uint64_t bias,
              std::span<uint8_t> image) {
  constexpr uint32_t kAbs64 = 3, kRelative64 = 13;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto table = At<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!table || table->sh_type != SHT_RELA || (table->sh_flags & SHF_ALLOC) == 0) continue;
    const auto symbols = At<Elf64_Shdr>(file, header.e_shoff + table->sh_link * sizeof(Elf64_Shdr));
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= table->sh_size; at += sizeof(Elf64_Rela)) {
      const auto entry = At<Elf64_Rela>(file, table->sh_offset + at);
      if (!entry || !symbols) return false;
      const auto symbol =
          At<Elf64_Sym>(file, symbols->sh_offset + ELF64_R_SYM(entry->r_info) * sizeof(Elf64_Sym));
      const uint32_t type = ELF64_R_TYPE(entry->r_info);
      if (!symbol || (type != kAbs64 && type != kRelative64)) return false;
      if (entry->r_offset > image.size() || image.size() - entry->r_offset < 8) return false;
      const uint64_t value =
          bias + static_cast<uint64_t>(entry->r_addend) + (type == kAbs64 ? symbol->st_value : 0);
      std::memcpy(image.data() + entry->r_offset, &value, sizeof value);
    }
  }
  return true;
}

// The fields of an AQL kernel dispatch packet (HSA runtime specification 2.9).
struct AqlPacket {
  uint16_t header = 0, setup = 0;
  uint16_t workgroup[3] = {}, reserved0 = 0;
  uint32_t grid[3] = {};
  uint32_t private_segment_size = 0, group_segment_size = 0;
  uint64_t kernel_object = 0, kernarg = 0, reserved2 = 0, completion_signal = 0;
};
static_assert(sizeof(AqlPacket) == 64);

AqlPacket PacketOf(const Dispatch& dispatch) {
  AqlPacket packet;
  packet.setup = 3;
  for (unsigned axis = 0; axis < 3; ++axis) {
    packet.workgroup[axis] = static_cast<uint16_t>(dispatch.workgroup[axis]);
    packet.grid[axis] = dispatch.grid[axis];
  }
  packet.private_segment_size = dispatch.private_segment_size;
  packet.group_segment_size = dispatch.group_segment_size;
  packet.kernel_object = dispatch.kernel_descriptor;
  packet.kernarg = dispatch.kernarg;
  return packet;
}

// Registers a range for the length of a scope.
class ScopedRange {
 public:
  ScopedRange(RangeMemory& memory, const void* start, size_t size)
      : memory_(memory), start_(start) {
    memory_.Add(start, size, true);
  }
  ~ScopedRange() { memory_.Remove(start_); }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

 private:
  RangeMemory& memory_;
  const void* start_;
};

}  // namespace

// --- RangeMemory ----------------------------------------------------------

bool RangeMemory::Check(uint64_t address, uint64_t size, bool write) {
  const auto inside = [&](const Range& range) {
    return address >= range.start && address < range.end && size <= range.end - address &&
           (range.writable || !write);
  };
  if (inside(last_)) return true;
  const auto it = ranges_.upper_bound(address);
  if (it == ranges_.end() || !inside(it->second)) return false;
  last_ = it->second;
  return true;
}

void RangeMemory::Add(const void* start, size_t size, bool writable) {
  const auto begin = reinterpret_cast<uint64_t>(start);
  if (size != 0) ranges_[begin + size] = {begin, begin + size, writable};
}

void RangeMemory::Remove(const void* start) {
  const auto begin = reinterpret_cast<uint64_t>(start);
  std::erase_if(ranges_, [&](const auto& entry) { return entry.second.start == begin; });
  last_ = Range();
}

// --- LoadedObject ---------------------------------------------------------

std::unique_ptr<LoadedObject> LoadedObject::Load(std::span<const uint8_t> elf, RangeMemory* memory,
                                                 std::string* error) {
  const auto header = At<Elf64_Ehdr>(elf, 0);
  if (!header || !IsCodeObject(*header)) {
    *error = "not an AMDGPU code object";
    return nullptr;
  }
  const std::vector<Elf64_Phdr> segments = LoadSegments(elf, *header);
  uint64_t end = 0;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_offset > elf.size() || segment.p_filesz > elf.size() - segment.p_offset ||
        segment.p_filesz > segment.p_memsz || segment.p_vaddr > (uint64_t{1} << 32)) {
      *error = "load segment lies outside the file";
      return nullptr;
    }
    end = std::max(end, segment.p_vaddr + segment.p_memsz);
  }
  if (end == 0) {
    *error = "nothing to load";
    return nullptr;
  }
  std::unique_ptr<LoadedObject> object(new LoadedObject);
  const size_t size = (end + kPage - 1) / kPage * kPage;
  void* image = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (image == MAP_FAILED) {
    *error = "out of memory";
    return nullptr;
  }
  object->image_ = static_cast<uint8_t*>(image);
  object->size_ = size;
  object->memory_ = memory;
  for (const Elf64_Phdr& segment : segments) {
    std::memcpy(object->image_ + segment.p_vaddr, elf.data() + segment.p_offset, segment.p_filesz);
  }
  if (!Relocate(elf, *header, object->bias(), object->image())) {
    munmap(image, size);
    object->image_ = nullptr;
    *error = "a relocation cannot be applied";
    return nullptr;
  }
  ReadSymbols(elf, *header, object->bias(), object->symbols_);
  memory->Add(image, size, true);
  return object;
}

LoadedObject::~LoadedObject() {
  if (image_ == nullptr) return;
  memory_->Remove(image_);
  munmap(image_, size_);
}

uint64_t LoadedObject::Symbol(std::string_view name) const {
  const auto it = symbols_.find(name);
  return it == symbols_.end() ? 0 : it->second;
}

std::vector<std::string> WithNewer(std::vector<std::string> targets) {
  if (LLVM_VERSION_MAJOR >= 22) targets.insert(targets.end(), {"gfx950", "gfx1250"});
  return targets;
}

std::vector<uint8_t> ReadBinaryFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// --- Launch ---------------------------------------------------------------

Fault Launch(Machine& machine, RangeMemory& memory, uint64_t kernel_descriptor,
             const KernelArgs& args, const LaunchShape& shape) {
  Dispatch dispatch;
  dispatch.kernel_descriptor = kernel_descriptor;
  uint32_t sizes[2] = {};  // the descriptor's group and private sizes
  if (memory.Check(kernel_descriptor, 64, false)) {
    std::memcpy(sizes, reinterpret_cast<const void*>(kernel_descriptor), sizeof(sizes));
  }
  dispatch.group_segment_size = std::max(shape.group_segment_size, sizes[0]);
  dispatch.private_segment_size =
      shape.private_segment_size != 0 ? shape.private_segment_size : sizes[1];
  std::copy(std::begin(shape.grid), std::end(shape.grid), dispatch.grid);
  std::copy(std::begin(shape.workgroup), std::end(shape.workgroup), dispatch.workgroup);
  // Hidden arguments, which the compiler may read although unused, are zero.
  std::vector<uint8_t> kernarg = args.bytes();
  kernarg.resize(kernarg.size() + 256);
  dispatch.kernarg = reinterpret_cast<uint64_t>(kernarg.data());
  AqlPacket packet = PacketOf(dispatch);
  dispatch.packet = reinterpret_cast<uint64_t>(&packet);
  ScopedRange kernarg_range(memory, kernarg.data(), kernarg.size());
  ScopedRange packet_range(memory, &packet, sizeof(packet));
  return machine.Run(dispatch);
}

}  // namespace softgpu
