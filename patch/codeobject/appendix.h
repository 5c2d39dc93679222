// What a finished image is given besides code: sections that are not loaded, and
// symbols.
//
// Nothing of the image moves. What has to grow (section names, symbols, strings)
// is copied to the end, the section headers last. Loaders look at none of it.
#ifndef PATCH_CODEOBJECT_APPENDIX_H_
#define PATCH_CODEOBJECT_APPENDIX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace rjdbi::patch {

struct Appendix {
  struct Section {
    std::string name;
    std::vector<uint8_t> bytes;
    bool behind = false;  // what a section of that name holds stays, in front
  };
  std::vector<Section> sections;  // SHT_PROGBITS, no flags; in place of one of that name
  // Local functions for .symtab. Where there is none it is made, and lists what
  // .dynsym does as well, because tools look into one of the two.
  struct Function {
    std::string name;
    uint64_t vaddr = 0, size = 0;
  };
  std::vector<Function> functions;
};

// `keep`: bytes at the start of the image that stay where they are; tables behind
// them that end the file are replaced instead of copied.
// INVALID_ARGUMENT: not an ELF file that CodeObject::Parse accepts, or a function
// in no executable section. FAILED_PRECONDITION: no section header can be added,
// or there is no table of section names. On an error the image is as it was.
absl::Status Append(std::vector<uint8_t>& image, const Appendix& appendix, uint64_t keep);

// The contents of the section of that name. nullopt: none, or not an ELF file.
std::optional<absl::Span<const uint8_t>> FindSection(absl::Span<const uint8_t> image,
                                                     std::string_view name);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_APPENDIX_H_
