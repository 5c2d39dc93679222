// Attachment specifications as people write them, on options and in one string:
//   kernel=GLOB,sites=SELECTOR,probe=NAME[,max-sgpr-delta=N]...
// A selector may hold commas: a part without "key=" continues the one before.
#ifndef CLIENTS_SPEC_TEXT_H_
#define CLIENTS_SPEC_TEXT_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::clients {

struct BudgetOption {
  const char* name;   // "max-sgpr-delta"
  const char* field;  // of Budget
  const char* help;
};
absl::Span<const BudgetOption> BudgetOptions();
// What the keys placement, mode and reduce take, with blanks between.
std::string PlacementNames();
std::string ModeNames();
std::string ReductionNames();

// INVALID_ARGUMENT names the key and what is wrong with its value.
absl::Status SetSpecField(v1::AttachmentSpec& spec, const std::string& key,
                          const std::string& value);
// `mode` is for one that names none; "": the default.
absl::StatusOr<v1::AttachmentSpec> ParseSpec(const std::string& text, const std::string& mode = "");

}  // namespace rjdbi::clients

#endif  // CLIENTS_SPEC_TEXT_H_
