// How often instructions of each class of a table ran, from the counts that rjdbid has.
// Exact where something counts each instruction's executions (block-count, count-waves);
// what nothing counts is listed and in no class.
#ifndef CLIENTS_OPCODES_PROFILE_H_
#define CLIENTS_OPCODES_PROFILE_H_

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "clients/opcodes/table.h"
#include "rjdbi/v1/control.pb.h"
#include "rjdbi/v1/opcodes.pb.h"

namespace rjdbi::clients {

class OpcodeProfiler {
 public:
  // Both must outlive it.
  OpcodeProfiler(const OpcodeClasses& classes, const v1::GetReportReply& report);

  struct Kernel {
    std::string object, name;  // SHA-256, hex; mangled
    uint64_t instructions = 0, counted = 0;
  };
  // Kernels that the report is about some of whose instructions nothing counts.
  std::vector<Kernel> Incomplete() const;
  // All instructions of such a kernel. Of another kernel's nothing is taken.
  void AddListing(const Kernel& kernel, const v1::ListSitesReply& listing);

  v1::OpcodeProfile Finish() const;

 private:
  using KernelKey = std::pair<std::string, std::string>;  // object, name
  using PlaceKey = std::tuple<std::string, uint64_t, std::string, std::string, uint64_t>;
  struct Place {
    std::string attachment, opcode;
    uint64_t count = 0;
    bool twice = false;
  };
  struct Sum {
    uint64_t count = 0, not_counted = 0;
    std::set<std::pair<KernelKey, uint64_t>> sites;
  };

  void AddPlace(const v1::SiteCount& count);
  Sum& SumOf(const std::string& opcode);

  const OpcodeClasses& classes_;
  const v1::GetReportReply& report_;
  std::map<PlaceKey, Place> places_;
  std::map<KernelKey, uint64_t> instructions_;
  std::map<KernelKey, std::set<uint64_t>> counted_;
  std::set<KernelKey> listed_;
  std::map<std::string, size_t> rows_;                 // of mnemonics met
  std::map<size_t, std::map<std::string, Sum>> sums_;  // by row and mnemonic
  uint64_t skipped_ = 0, unplaced_ = 0, twice_ = 0;
  bool final_ = true;
};

}  // namespace rjdbi::clients

#endif  // CLIENTS_OPCODES_PROFILE_H_
