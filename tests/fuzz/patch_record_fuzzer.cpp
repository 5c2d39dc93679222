// libFuzzer entry: what a patched object says of itself. The bytes are taken as an
// object, and as a record about a real one, which no checksum protects here.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "contract/address_map.h"
#include "contract/code_pieces.h"
#include "contract/patch_record.h"

namespace {

using rjdbi::patch::CodeObject;

void Require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "%s\n", promise);
  std::abort();
}

const CodeObject& Sample() {
  static const std::vector<uint8_t> bytes = [] {
    std::ifstream file(RJDBI_FUZZ_SAMPLE, std::ios::binary);
    return std::vector<uint8_t>((std::istreambuf_iterator<char>(file)), {});
  }();
  static const auto object = CodeObject::Parse(bytes);
  Require(object.ok(), "the sample does not parse");
  return *object;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto map = rjdbi::contract::AddressMap::Open({data, size});
  if (map.ok()) map->Describe("");
  rjdbi::v1::PatchRecord record;
  if (size > INT32_MAX || !record.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto pieces = rjdbi::contract::DecodePieces(record, Sample());
  if (!pieces.ok()) return 0;
  uint64_t end = 0;
  for (const auto& piece : *pieces) {
    Require(piece.vaddr >= end && piece.size > 0, "pieces overlap");
    end = piece.vaddr + piece.size;
    Require(end >= piece.vaddr && end <= record.segment_vaddr() + record.segment_size(),
            "a piece leaves the segment");
    Require(piece.kernel < Sample().kernels().size(), "no such kernel");
    Require(piece.original <= Sample().kernels()[piece.kernel].code_size, "outside the kernel");
  }
  return 0;
}
