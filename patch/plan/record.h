// What a probe's records look like: the engine's side of v1.RecordLayout, which
// documents the fields.
#ifndef PATCH_PLAN_RECORD_H_
#define PATCH_PLAN_RECORD_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "patch/isa/register_set.h"

namespace rjdbi::patch {

// Values of v1.AddressForm.
enum class AddressForm : uint8_t {
  kNone = 0,
  kFlat = 1,
  kGlobalSaddr = 2,
  kLds = 3,
  kScalar = 4,
  kBuffer = 5,
  kScratch = 6,
};

// Registers that hold the workgroup's id, by axis; nullopt: the kernel is not told.
using WorkgroupIds = std::array<std::optional<uint16_t>, 3>;

struct RecordLayout {
  uint32_t kind = 0;  // enum rjdbi_record_kind
  uint32_t site = 0;
  uint32_t bytes = 0;
  uint32_t lane_bytes = 0;
  uint32_t wavefront_size = 0;
  AddressForm address_form = AddressForm::kNone;
  int64_t offset = 0;
  std::optional<int64_t> offset1;
  bool buffer_index = false, buffer_offset = false;
  uint32_t access_bytes = 0;
  bool load = false, store = false;
  RegisterRange value_register;
  bool workgroup_id_known = false;
  std::string_view clock;  // static storage
};

}  // namespace rjdbi::patch

#endif  // PATCH_PLAN_RECORD_H_
