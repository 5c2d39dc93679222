// Allocation without exceptions: out of memory is a gap, never the host's problem.
#include "agent/types.h"

#include <new>

namespace rjdbi::agent {

OwnedBytes OwnedBytes::Allocate(size_t size) {
  OwnedBytes bytes;
  bytes.data_.reset(new (std::nothrow) uint8_t[size]);
  bytes.size_ = bytes.data_ ? size : 0;
  return bytes;
}

}  // namespace rjdbi::agent
