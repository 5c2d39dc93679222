// See code_objects.h.
#include "tests/softgpu/thunk/code_objects.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace softgpu {
namespace {

constexpr uint64_t kMaxString = 4096;
constexpr int kMaxObjects = 1 << 20;  // a list that loops while it changes must end

}  // namespace

LoadedCode::~LoadedCode() {
  if (mem_fd_ >= 0) close(mem_fd_);
}

bool LoadedCode::Read(uint64_t address, void* to, uint64_t size) {
  if (mem_fd_ < 0) mem_fd_ = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  return pread(mem_fd_, to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
}

std::string LoadedCode::ReadString(uint64_t address, uint64_t limit) {
  std::string text;
  char chunk[64];
  while (text.size() < limit) {
    // Up to the end of a 64-byte block, so as not to run into an unmapped page.
    const uint64_t n = std::min<uint64_t>(64 - address % 64, limit - text.size());
    if (!Read(address, chunk, n)) break;
    const size_t length = strnlen(chunk, n);
    text.append(chunk, length);
    if (length < n) break;
    address += n;
  }
  return text;
}

std::optional<CodeObject> LoadedCode::FindIn(uint64_t begin, uint64_t end) {
  r_debug list;
  if (r_debug_ == 0 || !Read(r_debug_, &list, sizeof(list))) return std::nullopt;
  uint64_t at = reinterpret_cast<uint64_t>(list.r_map);
  for (int i = 0; at != 0 && i < kMaxObjects; ++i) {
    link_map entry;
    if (!Read(at, &entry, offsetof(link_map, l_prev))) return std::nullopt;
    if (entry.l_addr >= begin && entry.l_addr < end) {
      CodeObject object;
      object.bias = entry.l_addr;
      object.uri = ReadString(reinterpret_cast<uint64_t>(entry.l_name), kMaxString);
      return object;
    }
    at = reinterpret_cast<uint64_t>(entry.l_next);
  }
  return std::nullopt;
}

std::string LoadedCode::SymbolAt(uint64_t bias, uint64_t end, uint64_t value) {
  Elf64_Ehdr header;
  if (!Read(bias, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "";
  }
  uint64_t dynamic = 0, dynamic_size = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!Read(bias + header.e_phoff + i * sizeof(segment), &segment, sizeof(segment))) return "";
    if (segment.p_type != PT_DYNAMIC) continue;
    dynamic = bias + segment.p_vaddr;
    dynamic_size = segment.p_memsz;
  }
  uint64_t symbols = 0, strings = 0, hash = 0;
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_size; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    if (!Read(dynamic + at, &entry, sizeof(entry)) || entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) symbols = bias + entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRTAB) strings = bias + entry.d_un.d_ptr;
    if (entry.d_tag == DT_HASH) hash = bias + entry.d_un.d_ptr;
  }
  uint32_t buckets_chains[2];  // DT_HASH: the second word is the number of symbols
  if (symbols == 0 || strings == 0 || hash == 0) return "";
  if (!Read(hash, buckets_chains, sizeof(buckets_chains))) return "";
  for (uint32_t i = 0; i < buckets_chains[1]; ++i) {
    Elf64_Sym symbol;
    const uint64_t at = symbols + i * sizeof(symbol);
    if (at + sizeof(symbol) > end || !Read(at, &symbol, sizeof(symbol))) return "";
    if (symbol.st_value != value || symbol.st_name == 0 || symbol.st_shndx == SHN_UNDEF) continue;
    return ReadString(strings + symbol.st_name, kMaxString);
  }
  return "";
}

}  // namespace softgpu
