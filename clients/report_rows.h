// The rows of a report: counts of loads and processes added up, what they count, and
// whether they can be put in an order.
#ifndef CLIENTS_REPORT_ROWS_H_
#define CLIENTS_REPORT_ROWS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "clients/control_client.h"
#include "clients/verbs.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// Loads of the same object, and the same code in several processes, add up;
// two builds of a kernel do not. Ordered as coverage is.
struct CountKey {
  std::string attachment, kernel, probe, object;
  uint64_t offset = 0;  // 0 where rows are no sites
  std::string opcode;   // "" where rows are no opcodes

  bool operator<(const CountKey& other) const;
};
struct CountSum {
  uint64_t count = 0;
  std::vector<uint64_t> words;  // of a user's probe that has more than one
  std::set<uint64_t> offsets;
  std::set<std::string> sessions;  // those that are still listed
  bool final = true;
  std::string instruction;
  uint64_t vaddr = 0;
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;  // degraded, if it is anywhere
  bool has_records = false;
  v1::RecordCounts records;

  bool Zero() const;
};
using CountSums = std::map<CountKey, CountSum>;
using CountRow = CountSums::value_type;

CountSums SumCounts(const v1::GetReportReply& reply, Filter::By by);

// What a probe's count is of: "wavefronts" (executions of the instruction), "lanes",
// "executions" (that a record was or should have been written of); of a user's probe
// "probe:NAME".
std::string UnitOf(const std::string& probe);

std::string OpcodeOf(const std::string& instruction);

// Adds up `part`.
void AddRecordCounts(v1::RecordCounts& sum, const v1::RecordCounts& part);
uint64_t NotArrived(const v1::RecordCounts& records);

// Whether an order of counts would be one of what was asked for. It would not when some
// of that is not counted, because nothing is known of how often it ran; when counts are of
// different things; or when a process was killed, whose counts end with its last report.
struct Ranking {
  std::string why_not;      // one sentence; "": there is an order
  bool unfinished = false;  // of what has been counted so far: processes still run
};
Ranking RankingOf(const v1::GetReportReply& reply, const v1::GetStatusReply& status);

// The rows that are to be shown: in the table's order, or the highest counts first.
std::vector<const CountRow*> OrderedRows(const CountSums& sums, bool by_count);

// Of rows in order of their counts: 1 for the first, equal counts equal ranks.
std::vector<uint64_t> Ranks(const std::vector<const CountRow*>& rows);

// What of a report nobody counted or asked for: zero rows of the runtime's own kernels.
bool InTheWay(const CountRow& row);

// As CSV, a line of names first; rjctl(1) lists the columns. `ranked`: the rows are in
// order of their counts.
void PrintReportCsv(const Output& out, const std::vector<const CountRow*>& rows,
                    const v1::GetReportReply& reply, Filter::By by, bool ranked);

}  // namespace rjdbi::clients

#endif  // CLIENTS_REPORT_ROWS_H_
