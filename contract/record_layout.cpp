// See record_layout.h.
#include "contract/record_layout.h"

#include <string>

namespace rjdbi::contract {

v1::RecordLayout LayoutOf(const patch::RecordLayout& layout) {
  v1::RecordLayout out;
  out.set_kind(layout.kind);
  out.set_site(layout.site);
  out.set_bytes(layout.bytes);
  out.set_lane_bytes(layout.lane_bytes);
  out.set_wavefront_size(layout.wavefront_size);
  out.set_address_form(static_cast<v1::AddressForm>(layout.address_form));
  out.set_offset(layout.offset);
  if (layout.offset1) out.set_offset1(*layout.offset1);
  out.set_buffer_index(layout.buffer_index);
  out.set_buffer_offset(layout.buffer_offset);
  out.set_access_bytes(layout.access_bytes);
  out.set_store(layout.store);
  out.set_load(layout.load);
  if (layout.value_register.count != 0) {
    out.set_value_register(patch::RangeName(layout.value_register));
  }
  out.set_workgroup_id_known(layout.workgroup_id_known);
  out.set_clock(std::string(layout.clock));
  return out;
}

}  // namespace rjdbi::contract
