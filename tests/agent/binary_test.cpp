// What librjdbi-agent.so shows to its host and what it drags in: read from the
// file itself.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// Just enough of an ELF reader for a library we have built ourselves.
class Library {
 public:
  explicit Library(const char* path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    std::memcpy(&header_, bytes_.data(), sizeof header_);
    for (int i = 0; i < header_.e_shnum; ++i) {
      sections_.push_back(
          Read<Elf64_Shdr>(header_.e_shoff + static_cast<size_t>(i) * header_.e_shentsize));
    }
  }

  std::vector<std::string> ExportedSymbols() const {
    std::vector<std::string> names;
    ForEach<Elf64_Sym>(SHT_DYNSYM, [&](const Elf64_Sym& symbol, size_t strings) {
      if (symbol.st_shndx != SHN_UNDEF) names.push_back(String(strings, symbol.st_name));
    });
    return names;
  }

  std::vector<std::string> Needed() const {
    std::vector<std::string> names;
    ForEach<Elf64_Dyn>(SHT_DYNAMIC, [&](const Elf64_Dyn& entry, size_t strings) {
      if (entry.d_tag == DT_NEEDED) names.push_back(String(strings, entry.d_un.d_val));
    });
    return names;
  }

  uint64_t Dynamic(int64_t tag) const {
    uint64_t value = 0;
    ForEach<Elf64_Dyn>(SHT_DYNAMIC, [&](const Elf64_Dyn& entry, size_t) {
      if (entry.d_tag == tag) value = entry.d_un.d_val;
    });
    return value;
  }

 private:
  template <typename T>
  T Read(size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  std::string String(size_t table, size_t at) const { return bytes_.data() + table + at; }

  template <typename T, typename F>
  void ForEach(uint32_t type, F&& visit) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != type) continue;
      for (size_t at = 0; at < section.sh_size; at += sizeof(T)) {
        visit(Read<T>(section.sh_offset + at), sections_[section.sh_link].sh_offset);
      }
    }
  }

  std::vector<char> bytes_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

TEST(AgentBinary, ExportsOnlyTheInterposedNames) {
  EXPECT_THAT(
      Library(RJDBI_AGENT_PATH).ExportedSymbols(),
      ::testing::UnorderedElementsAre(
          "hsa_code_object_reader_create_from_memory", "hsa_code_object_reader_create_from_file",
          "hsa_code_object_reader_destroy", "hsa_code_object_deserialize",
          "hsa_code_object_destroy", "hsa_executable_load_agent_code_object",
          "hsa_executable_load_code_object", "hsa_executable_destroy", "hsa_queue_create",
          "hsa_queue_destroy", "hsa_system_get_extension_table",
          "hsa_system_get_major_extension_table", "hsa_shut_down", "OnLoad", "OnUnload"));
}

TEST(AgentBinary, NeedsOnlyTheAllowedLibraries) {
  std::vector<std::string> allowed = {"libnghttp2.so.14", "libc.so.6", "ld-linux-x86-64.so.2"};
#if RJDBI_SANITIZED
  // Sanitized builds use the shared C++ runtime.
  for (const char* name : {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libasan.so.8",
                           "libubsan.so.1", "libtsan.so.2"}) {
    allowed.push_back(name);
  }
#endif
  std::vector<std::string> needed = Library(RJDBI_AGENT_PATH).Needed();
  EXPECT_FALSE(needed.empty());
  for (const std::string& name : needed) {
    EXPECT_THAT(allowed, ::testing::Contains(name)) << "new dependency";
  }
}

TEST(AgentBinary, StaysLoadedAndBindsAtOnce) {
  Library library(RJDBI_AGENT_PATH);
  EXPECT_TRUE(library.Dynamic(DT_FLAGS_1) & DF_1_NODELETE);
  EXPECT_TRUE(library.Dynamic(DT_FLAGS_1) & DF_1_NOW);
  EXPECT_EQ(library.Dynamic(DT_TEXTREL), 0u);
}

}  // namespace
