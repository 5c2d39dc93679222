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

struct Context {
  const Output& out;
  std::string control_socket;
};

struct Filter {
  std::string attachment, kernel, session;
  enum class By : uint8_t { kSite, kOpcode, kKernel };
  By by = By::kSite;  // report: what a row of the table is
  bool all = false;   // what detached attachments have left, too, and every zero row
};

struct RecordsOptions {
  Filter filter;
  uint64_t last = 0;  // 0: all that the daemon holds
  bool follow = false;
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
int Records(const Context& context, const RecordsOptions& options);
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

// 0, 3 or 4: see rjctl(1).
int CoverageExit(const v1::GetCoverageReply& reply);
// Attachments in the reply that attached nowhere, with what was probably meant, and those
// that running processes have not taken over yet.
void WarnVacuousIn(const Context& context, const v1::GetCoverageReply& reply);
// The records that a report's counts are about.
v1::GetRecordsRequest RecordsOf(const v1::GetReportRequest& request);
// Of the filter: what to print, not what was asked.
void PrintReport(const Output& out, const v1::GetReportReply& reply, const Filter& filter);

}  // namespace rjdbi::clients

#endif  // CLIENTS_VERBS_H_
