// Looks a processor up in the families' tables.
#include "patch/isa/generation.h"

#include <string>

#include "absl/status/status.h"
#include "patch/isa/generations/families.h"

namespace rjdbi::patch {

absl::StatusOr<const Generation*> FindGeneration(std::string_view processor) {
  for (const auto rows : {Gfx9Processors(), Gfx10Processors(), Gfx11Processors(), Gfx12Processors(),
                          Gfx125Processors()}) {
    for (const ProcessorRow& row : rows) {
      if (row.processor == processor) return row.generation;
    }
  }
  return absl::NotFoundError("no hardware table for processor " + std::string(processor));
}

}  // namespace rjdbi::patch
