// rjctl's verbs: each gets its options and gives an exit code.
#ifndef CLIENTS_VERBS_H_
#define CLIENTS_VERBS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clients/control_client.h"
#include "clients/output.h"
#include "rjdbi/v1/contract.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

struct Ranking;  // clients/report_rows.h

struct Context {
  const Output& out;
  std::string control_socket;
};

struct Filter {
  std::string attachment, kernel, session;
  enum class By : uint8_t { kSite, kOpcode, kKernel };
  By by = By::kSite;      // report, top: what a row of the table is
  bool by_count = false;  // report: the highest counts first, if that is an order
  std::string html;       // report: the page's file; "": none
  bool all = false;       // what detached attachments have left, too, and every zero row
};

// Of a request for coverage, a report or records.
template <typename Request>
void FillRequest(const Filter& filter, Request& request) {
  request.set_attachment_id(filter.attachment);
  request.set_kernel_glob(filter.kernel);
  request.set_session_id(filter.session);
  request.set_include_detached(filter.all);
}

struct RecordsOptions {
  Filter filter;
  uint64_t last = 0;  // 0: all that the daemon holds
  bool follow = false;
};

struct ExportOptions {
  Filter filter;
  std::string format;  // folded, pprof, perfetto
  std::string file;    // "": standard output
};

struct TopOptions {
  Filter filter;
  double interval_s = 1;
  uint64_t count = 0;  // intervals; 0: until somebody ends it
  uint64_t rows = 20;  // at most
};

struct RunOptions {
  std::string agent_library, agent_socket;
  int deadline_ms = 0;  // 0: RJDBI_DEADLINE_MS, or what somebody who asked for probes will wait
  std::vector<std::string> attach;
  std::string mode;  // of attachments that name none
  bool report = false;
  std::vector<std::string> command;
};

struct WhyOptions {
  std::string kernel;              // glob
  std::optional<uint64_t> offset;  // bytes from the kernel's start
  bool all = false;                // every site on its own
  std::string file;                // "": ask the daemon
  std::vector<std::string> attach;
};
inline constexpr size_t kMostExcerpts = 64;  // more than anybody reads

struct AdmitOptions {
  std::string file, image, map;
  std::vector<std::string> attach;
  std::string mode;  // of attachments that name none
  bool all_decisions = false;
  bool beside = false;  // an image to load beside the loaded original
};

struct PerturbationOptions {
  std::vector<std::string> paths;    // code objects, bundles, programs, libraries, folders
  v1::AttachmentSpec spec;           // all but the probe
  std::vector<std::string> probes;   // each on its own
  std::vector<std::string> targets;  // parts of ISA names; empty: all
  size_t limit = 0;                  // objects, evenly spread; 0: all
};

struct PatchedOptions {  // of verbs about a patched object
  std::string file;
  std::string original;  // map: the file that it must come from
  std::string image;     // unpatch: where the original goes
  std::string kernel;
  std::vector<std::string> pcs;
};

// rjctl check, infer.
struct ProbeOptions {
  std::string object, manifest, entry, name, format;
  std::string probe;  // check: the object, when `object` names a manifest
  std::vector<std::string> arguments;
  uint32_t telemetry_words = 0;  // 0: as many as it uses
  uint32_t wavefront_size = 0;   // 0: the processor's usual one
};

struct OpcodesOptions {
  std::vector<std::string> files;  // blobs
  std::string map, table;          // arm: the table goes there; profile: it is there
  Filter filter;                   // profile
  enum class By : uint8_t { kClass, kRow, kOpcode };
  By by = By::kClass;
};

// Both wait up to so many seconds for running processes to take the change over.
int Attach(const Context& context, const v1::AttachmentSpec& spec, int wait_s);
int Detach(const Context& context, const std::vector<std::string>& ids, bool all, int wait_s);
int Status(const Context& context, bool all);  // all: every ended process, too
int CodeObjects(const Context& context);
int WhyNotAttached(const Context& context, const WhyOptions& options);
int WhyNotAttachedInFile(const Context& context, const WhyOptions& options);
int PrintWhyNotAttached(const Context& context, const WhyOptions& options,
                        const v1::WhyNotAttachedReply& reply);
int Coverage(const Context& context, const Filter& filter);
int Report(const Context& context, const Filter& filter);
int ReportPage(const Context& context, const Filter& filter);  // into filter.html
int Records(const Context& context, const RecordsOptions& options);
int TopVerb(const Context& context, const TopOptions& options);
int Export(const Context& context, const ExportOptions& options);
// file "": ask the daemon.
int Kernels(const Context& context, const std::string& file, const std::string& hash,
            const std::string& kernel);
int Sites(const Context& context, const std::string& file, const std::string& hash,
          const std::string& kernel, const std::string& sites);
int WaitCheck(const Context& context, const std::string& file, const std::string& kernel);
int Explain(const Context& context, const std::string& id);
int Admit(const Context& context, const AdmitOptions& options);
int Perturbation(const Context& context, const PerturbationOptions& options);
int Map(const Context& context, const PatchedOptions& options);
int Unpatch(const Context& context, const PatchedOptions& options);
int Run(const Context& context, const RunOptions& options);
int Check(const Context& context, const ProbeOptions& options);
int Infer(const Context& context, const ProbeOptions& options);
int OpcodesShow(const Context& context, const OpcodesOptions& options);
int OpcodesCheck(const Context& context, const OpcodesOptions& options);
int OpcodesDiff(const Context& context, const OpcodesOptions& options);  // 1: they differ
int OpcodesArm(const Context& context, const OpcodesOptions& options);
int OpcodesProfile(const Context& context, const OpcodesOptions& options);

// 0, 3 or 4: see rjctl(1).
int CoverageExit(const v1::GetCoverageReply& reply);
// Attachments in the reply that attached nowhere, with what was probably meant, and those
// that running processes have not taken over yet.
void WarnVacuousIn(const Context& context, const v1::GetCoverageReply& reply);
// Says so when detached attachments have left something that `filter` leaves out.
void NoteDetachedIn(const Context& context, const v1::GetCoverageReply& reply,
                    const Filter& filter);
// The records that a report's counts are about.
v1::GetRecordsRequest RecordsOf(const v1::GetReportRequest& request);
// Of the filter: what to print, not what was asked. With a ranking: in the order of the
// counts, or why not.
void PrintReport(const Output& out, const v1::GetReportReply& reply, const Filter& filter,
                 const std::optional<Ranking>& ranking);

}  // namespace rjdbi::clients

#endif  // CLIENTS_VERBS_H_
