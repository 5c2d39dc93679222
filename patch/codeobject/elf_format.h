// The parts of ELF64 that code objects use. Private to patch/codeobject.
// Sources: System V ABI "Object Files", LLVM AMDGPUUsage "ELF Code Object".
#ifndef PATCH_CODEOBJECT_ELF_FORMAT_H_
#define PATCH_CODEOBJECT_ELF_FORMAT_H_

#include <bit>
#include <cstdint>
#include <cstring>

namespace rjdbi::patch::elf {

static_assert(std::endian::native == std::endian::little, "code objects are little-endian");

struct FileHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
static_assert(sizeof(FileHeader) == 64);

struct ProgramHeader {
  uint32_t type, flags;
  uint64_t offset, vaddr, paddr, filesz, memsz, align;
};
static_assert(sizeof(ProgramHeader) == 56);

struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, addr, offset, size;
  uint32_t link, info;
  uint64_t addralign, entsize;
};
static_assert(sizeof(SectionHeader) == 64);

struct Symbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t shndx;
  uint64_t value, size;
};
static_assert(sizeof(Symbol) == 24);

// The beginning of Rel and Rela.
struct Relocation {
  uint64_t offset, info;
};
static_assert(sizeof(Relocation) == 16);

struct NoteHeader {
  uint32_t namesz, descsz, type;
};

enum : uint8_t { kClass64 = 2, kDataLittle = 1, kOsAbiHsa = 64 };
enum : uint8_t {
  kIdentClass = 4,
  kIdentData = 5,
  kIdentVersion = 6,
  kIdentOsAbi = 7,
  kIdentAbi = 8
};
enum : uint16_t { kTypeRelocatable = 1, kTypeShared = 3, kMachineAmdgpu = 224 };
enum : uint32_t {
  kPtLoad = 1,
  kPtNote = 4,
  kPtGnuStack = 0x6474e551,
  kPtGnuRelro = 0x6474e552,
};
enum : uint32_t { kPfExecute = 1, kPfWrite = 2, kPfRead = 4 };
enum : uint32_t {
  kShtProgbits = 1,
  kShtSymtab = 2,
  kShtStrtab = 3,
  kShtRela = 4,
  kShtNote = 7,
  kShtNobits = 8,
  kShtRel = 9,
  kShtDynsym = 11
};
enum : uint64_t { kShfAlloc = 2, kShfExec = 4 };
enum : uint16_t { kShnUndef = 0, kShnLoReserve = 0xff00 };
enum : uint8_t { kSymbolObject = 1, kSymbolFunc = 2 };
inline constexpr uint32_t kNoteMetadata = 32;  // NT_AMDGPU_METADATA

// Unaligned read; the caller has checked the range.
template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// offset + size <= limit without overflow.
inline bool Fits(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

}  // namespace rjdbi::patch::elf

#endif  // PATCH_CODEOBJECT_ELF_FORMAT_H_
