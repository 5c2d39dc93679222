// rjctl: the options of every verb, and nothing else.
#include <google/protobuf/stubs/logging.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "clients/completion.h"
#include "clients/spec_text.h"
#include "clients/verbs.h"
#include "contract/manifest.h"
#include "contract/user_probe.h"

namespace rjdbi::clients {
namespace {

constexpr char kDefaultControlSocket[] = "/run/rjdbid/control.sock";

std::string DefaultSocket() {
  const char* value = std::getenv("RJDBI_CONTROL_SOCKET");
  return value != nullptr && *value != '\0' ? value : kDefaultControlSocket;
}

// Everything that the command line can say.
struct Arguments {
  OutputOptions output;
  std::string format = "table";
  std::string socket = DefaultSocket();
  v1::AttachmentSpec spec;
  std::vector<std::string> ids;
  bool all = false;
  int wait_s = 10;  // attach, detach: for running processes
  std::string kernel, file, hash, sites, id, shell;
  std::optional<std::string> offset;
  Filter filter;
  RecordsOptions records;
  ExportOptions exported;
  TopOptions top;
  RunOptions run;
  AdmitOptions admit;
  PerturbationOptions perturbation;
  PatchedOptions patched;
  ProbeOptions probe;
  OpcodesOptions opcodes;
  std::function<int(const Context&)> verb;
};

// CLI11's own says "not in range" up to a number of 309 digits.
CLI::Validator OneOrMore() {
  return CLI::Validator(
      [](std::string& text) {
        uint64_t number = 0;
        const bool ok = absl::SimpleAtoi(text, &number) && number > 0;
        return ok ? std::string() : absl::StrCat("'", text, "' is no number of 1 or more");
      },
      "");
}

// CLI11's own says that a text which is no number is "not in range".
CLI::Validator Between(int least, int most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        int number = 0;
        const bool ok = absl::SimpleAtoi(text, &number) && number >= least && number <= most;
        return ok ? std::string()
                  : absl::StrCat("'", text, "' is no number from ", least, " to ", most);
      },
      "");
}

// CLI11's Range takes "nan" for a number in it.
CLI::Validator Seconds() {
  static constexpr double kLeast = 0.05, kMost = 3600;
  return CLI::Validator(
      [](std::string& text) {
        double seconds = 0;
        const bool ok = absl::SimpleAtod(text, &seconds) && seconds >= kLeast && seconds <= kMost;
        return ok ? std::string()
                  : absl::StrCat("'", text, "' is not between ", kLeast, " and ", kMost);
      },
      "");
}

CLI::App* Verb(CLI::App& app, Arguments& a, const char* name, const char* help,
               std::function<int(const Context&)> run) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->fallthrough();
  verb->callback([&a, run = std::move(run)] { a.verb = run; });
  return verb;
}

// An option whose value becomes a field of the attachment.
void SpecOption(CLI::App* verb, v1::AttachmentSpec& spec, const std::string& key,
                const std::string& help, const char* type, bool required) {
  auto* option = verb->add_option_function<std::string>(
      "--" + key,
      [&spec, key](const std::string& value) {
        const absl::Status status = SetSpecField(spec, key, value);
        if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
      },
      help);
  option->type_name(type);
  if (required) option->required();
}

// Of attachments whose specification names no mode.
void ModeOption(CLI::App* verb, std::string& mode) {
  verb->add_option("--mode", mode, "enforce (default), warn or dryrun, of those that name none")
      ->type_name("MODE")
      ->check([](const std::string& value) {
        v1::AttachmentSpec spec;
        return std::string(SetSpecField(spec, "mode", value).message());
      });
}

void AddWait(CLI::App* verb, Arguments& a) {
  verb->add_option("--wait", a.wait_s,
                   "How long to wait for running processes to follow (default 10; 0: not at all)")
      ->type_name("SECONDS")
      ->check(Between(0, 3600));
}

void AddAttach(CLI::App& app, Arguments& a) {
  CLI::App* verb = Verb(app, a, "attach", "Attach a probe to kernels", [&a](const Context& c) {
    return a.spec.probe().empty() ? c.out.FailUsage(
                                        "attach: --probe, or --probe-object and "
                                        "--probe-manifest, is required")
                                  : Attach(c, a.spec, a.wait_s);
  });
  SpecOption(verb, a.spec, "kernel", "Kernels, by mangled or demangled name", "GLOB", true);
  SpecOption(verb, a.spec, "sites",
             "ds_*, memory(write) and not lds, entry, exit, block, FILE:LINE, ...", "SELECTOR",
             true);
  SpecOption(verb, a.spec, "probe", contract::ProbeNames(), "NAME", false);
  SpecOption(verb, a.spec, "register", "With --probe value: s7, s[4:5], v3, vcc, exec, m0, scc",
             "NAME", false);
  SpecOption(verb, a.spec, "probe-object", "A probe of your own: its object", "FILE", false);
  SpecOption(verb, a.spec, "probe-manifest", "and its manifest, which names it", "FILE", false);
  SpecOption(verb, a.spec, "position", "before (default) or after each instruction", "WHERE",
             false);
  SpecOption(verb, a.spec, "placement", "auto, trampoline or clone: how kernels run the probe",
             "HOW", false);
  SpecOption(verb, a.spec, "mode",
             "enforce (default), warn or dryrun: what becomes of what is over its limits", "MODE",
             false);
  SpecOption(verb, a.spec, "reduce",
             "block-count, rotate: what may be done when sums are over budget, in order", "LIST",
             false);
  SpecOption(verb, a.spec, "rotation", "With --reduce rotate: whose turn it is (default 0)", "N",
             false);
  SpecOption(verb, a.spec, "process", "Executables, by path or base name", "GLOB", false);
  SpecOption(verb, a.spec, "owner", "Free text for the status listing", "TEXT", false);
  verb->add_option_function<std::string>(
          "-p,--pid",
          [&a](const std::string& value) {
            const absl::Status status = SetSpecField(a.spec, "pid", value);
            if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
          },
          "One process and those it starts")
      ->type_name("PID");
  for (const BudgetOption& option : BudgetOptions()) {
    SpecOption(verb, a.spec, option.name, option.help, "N", false);
  }
  verb->add_flag_callback(
      "--allow-sabotage", [&a] { a.spec.set_allow_sabotage(true); },
      "Consent to wrong results (the daemon has to consent too)");
  AddWait(verb, a);
  verb->footer(
      "Exit code 3: refused, or at no site of the kernels that running processes have loaded. "
      "0 while it waits for processes or kernels.");
}

void AddFilter(CLI::App* verb, Arguments& a) {
  verb->add_option("--attachment", a.filter.attachment, "Only this attachment")->type_name("ID");
  verb->add_option("--kernel", a.filter.kernel, "Only these kernels")->type_name("GLOB");
  verb->add_option("--session", a.filter.session, "Only this session (prefix)")->type_name("ID");
  verb->add_flag("--all", a.filter.all,
                 "Detached attachments, and zeros of the runtime's own kernels, too");
}

void AddBy(CLI::App* verb, Arguments& a) {
  static const std::map<std::string, Filter::By> kRows = {{"site", Filter::By::kSite},
                                                          {"opcode", Filter::By::kOpcode},
                                                          {"kernel", Filter::By::kKernel}};
  CLI::Option* by =
      verb->add_option("--by", a.filter.by,
                       "A row for each site (default), opcode or kernel (table and CSV)")
          ->type_name("WHAT")
          ->transform([](const std::string& text) {
            const auto row = kRows.find(text);
            if (row == kRows.end()) {
              throw CLI::ValidationError("--by", "expected site, opcode or kernel");
            }
            return std::to_string(static_cast<int>(row->second));
          });
  verb->add_flag_callback(
          "--summary", [&a] { a.filter.by = Filter::By::kKernel; }, "The same as --by kernel")
      ->excludes(by);
}

int WhyNot(const Context& context, const Arguments& a) {
  std::optional<uint64_t> offset;
  if (a.offset.has_value()) {
    uint64_t value = 0;
    const bool hex = a.offset->compare(0, 2, "0x") == 0;
    if (hex ? !absl::SimpleHexAtoi(*a.offset, &value) : !absl::SimpleAtoi(*a.offset, &value)) {
      return context.out.FailUsage(absl::StrCat("'", *a.offset, "' is not an offset (0x40, 64)"));
    }
    offset = value;
  }
  const WhyOptions options = {a.kernel, offset, a.all, a.file, a.admit.attach};
  if (a.file.empty() != a.admit.attach.empty()) {
    return context.out.FailUsage("why-not-attached: --file and --attach belong together");
  }
  return a.file.empty() ? WhyNotAttached(context, options) : WhyNotAttachedInFile(context, options);
}

int DetachVerb(const Context& context, const Arguments& a) {
  if (a.ids.empty() == !a.all) {
    return context.out.FailUsage("detach: give the attachments' ids, or --all");
  }
  return Detach(context, a.ids, a.all, a.wait_s);
}

void AddQueries(CLI::App& app, Arguments& a) {
  CLI::App* verb = Verb(app, a, "detach", "Remove attachments",
                        [&a](const Context& c) { return DetachVerb(c, a); });
  verb->add_option("ID", a.ids, "Attachments, as status lists them");
  verb->add_flag("--all", a.all, "Every attachment");
  AddWait(verb, a);

  verb = Verb(app, a, "status", "Daemon, attachments, processes, GPUs",
              [&a](const Context& c) { return Status(c, a.all); });
  verb->add_flag("--all", a.all, "Every process that has ended, too (table only)");
  Verb(app, a, "code-objects", "Code objects that processes have loaded", CodeObjects);

  verb = Verb(app, a, "kernels", "Kernels of a file, or of the objects that rjdbid has seen",
              [&a](const Context& c) { return Kernels(c, a.file, a.hash, a.kernel); });
  verb->add_option("FILE", a.file, "Code object");
  verb->add_option("--object", a.hash, "Only this object (hash prefix)")->type_name("HASH");
  verb->add_option("--kernel", a.kernel, "Only these kernels")->type_name("GLOB");

  verb = Verb(app, a, "sites", "Instructions and whether they can take a probe",
              [&a](const Context& c) { return Sites(c, a.file, a.hash, a.kernel, a.sites); });
  verb->add_option("FILE", a.file, "Code object");
  verb->add_option("--object", a.hash, "Only this object (hash prefix)")->type_name("HASH");
  verb->add_option("--kernel", a.kernel, "Only these kernels")->type_name("GLOB");
  verb->add_option("--sites", a.sites, "Only these instructions")->type_name("SELECTOR");

  verb = Verb(app, a, "why-not-attached", "Why a kernel, or one place in it, has no probe",
              [&a](const Context& c) { return WhyNot(c, a); });
  verb->add_option("KERNEL", a.kernel, "Glob")->required();
  verb->add_option("OFFSET", a.offset, "Bytes from the kernel's start");
  verb->add_flag("--all", a.all, "Every site on its own, and detached attachments, too");
  verb->add_option("--file", a.file, "Ask about this code object, not about processes")
      ->type_name("FILE");
  verb->add_option("--attach", a.admit.attach, "With --file: what is asked for, as for admit")
      ->type_name("SPEC")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);

  verb = Verb(app, a, "coverage", "How much of what was asked for is in place",
              [&a](const Context& c) { return Coverage(c, a.filter); });
  AddFilter(verb, a);
  verb = Verb(app, a, "report", "Counts, with their coverage", [&a](const Context& c) {
    return a.filter.html.empty() ? Report(c, a.filter) : ReportPage(c, a.filter);
  });
  AddFilter(verb, a);
  AddBy(verb, a);
  verb->add_option_function<std::string>(
          "--sort", [&a](const std::string& order) { a.filter.by_count = order == "count"; },
          "place (default), or count where coverage supports an order (table and CSV)")
      ->type_name("ORDER")
      ->check(CLI::IsMember({"place", "count"}));

  verb->add_option("--html", a.filter.html, "Write a page instead: annotated instructions")
      ->type_name("FILE");

  verb = Verb(app, a, "records", "Trace records, one line each", [&a](const Context& c) {
    a.records.filter = a.filter;
    return Records(c, a.records);
  });
  AddFilter(verb, a);
  verb->add_option("--last", a.records.last, "Only so many, the newest")
      ->type_name("N")
      ->check(OneOrMore());
  verb->add_flag("--follow", a.records.follow, "Go on with those that come in");

  verb = Verb(app, a, "top", "What is counted per second, as it goes", [&a](const Context& c) {
    a.top.filter = a.filter;
    return TopVerb(c, a.top);
  });
  AddFilter(verb, a);
  AddBy(verb, a);
  verb->add_option("--interval", a.top.interval_s, "Between two looks (default 1)")
      ->type_name("SECONDS")
      ->check(Seconds());
  verb->add_option("--count", a.top.count, "End after so many intervals")
      ->type_name("N")
      ->check(OneOrMore());
  verb->add_option("--rows", a.top.rows, "At most so many (default 20)")
      ->type_name("N")
      ->check(OneOrMore());

  verb = Verb(app, a, "export", "What was collected, in the formats of other viewers",
              [&a](const Context& c) {
                a.exported.filter = a.filter;
                return Export(c, a.exported);
              });
  AddFilter(verb, a);
  verb->add_option("--format", a.exported.format, "folded, pprof or perfetto")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"folded", "pprof", "perfetto"}))
      ->required();
  verb->add_option("--output-file", a.exported.file, "Where it goes (default standard output)")
      ->type_name("FILE");

  verb = Verb(app, a, "explain", "What a constraint id means",
              [&a](const Context& c) { return Explain(c, a.id); });
  verb->add_option("ID", a.id, "Such as RJD-B001")->required();
}

void AddPatched(CLI::App& app, Arguments& a) {
  CLI::App* verb = Verb(app, a, "map", "Program counters of a patched object, and of its original",
                        [&a](const Context& c) { return Map(c, a.patched); });
  verb->add_option("FILE", a.patched.file, "Patched code object")->required();
  verb->add_option("PC", a.patched.pcs, "Addresses in the image (0x5040), or KERNEL+0x40");
  verb->add_option("--kernel", a.patched.kernel, "Only these kernels")->type_name("GLOB");
  verb->add_option("--original", a.patched.original, "Fail unless it was patched from this file")
      ->type_name("FILE");

  verb = Verb(app, a, "unpatch", "Give back the original of a patched object",
              [&a](const Context& c) { return Unpatch(c, a.patched); });
  verb->add_option("FILE", a.patched.file, "Patched code object")->required();
  verb->add_option("--output-image", a.patched.image, "Where the original goes")->type_name("FILE");
}

void AddRunAndAdmit(CLI::App& app, Arguments& a) {
  constexpr char kSpecHelp[] = "kernel=GLOB,sites=SELECTOR,probe=NAME[,KEY=VALUE...]";
  CLI::App* verb = Verb(app, a, "run", "Run a program with the agent loaded",
                        [&a](const Context& c) { return Run(c, a.run); });
  verb->footer(
      "Usage: rjctl run [OPTIONS] [--] COMMAND [ARGUMENT...]\n"
      "The exit code is the command's (128 + N after signal N).");
  verb->add_option("--agent", a.run.agent_library, "Agent library")->type_name("FILE");
  verb->add_option("--deadline-ms", a.run.deadline_ms,
                   "How long the program may wait for the daemon in total (default 30000)")
      ->type_name("MS")
      ->check(Between(1, 600000));
  verb->add_option("--agent-socket", a.run.agent_socket, "Where the agent finds rjdbid")
      ->type_name("PATH");
  verb->add_option("--attach", a.run.attach, std::string("Attach for this run: ") + kSpecHelp)
      ->type_name("SPEC")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  ModeOption(verb, a.run.mode);
  verb->add_flag("--report", a.run.report, "Print the report when the command has ended");

  verb = Verb(app, a, "admit", "Judge and patch a code object without a daemon",
              [&a](const Context& c) { return Admit(c, a.admit); });
  verb->add_option("FILE", a.admit.file, "Code object")->required();
  verb->add_option("--attach", a.admit.attach, kSpecHelp)
      ->type_name("SPEC")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->required();
  ModeOption(verb, a.admit.mode);
  verb->add_option("--output-image", a.admit.image, "Where the patched image goes")
      ->type_name("FILE");
  verb->add_option("--output-map", a.admit.map, "Where the address map goes, as JSON")
      ->type_name("FILE");
  verb->add_flag("--all", a.admit.all_decisions, "List attached sites too (table only)");
  verb->add_flag("--beside", a.admit.beside,
                 "Make an image to load beside the original, once that is loaded");

  verb = Verb(app, a, "waitcheck", "Registers that kernels use before they have arrived",
              [&a](const Context& c) { return WaitCheck(c, a.file, a.kernel); });
  verb->add_option("FILE", a.file, "Code object")->required();
  verb->add_option("--kernel", a.kernel, "Only these kernels")->type_name("GLOB");

  PerturbationOptions& p = a.perturbation;
  verb = Verb(app, a, "perturbation", "What probes would cost the kernels that carry them",
              [&a](const Context& c) { return Perturbation(c, a.perturbation); });
  verb->add_option("PATH", p.paths, "Code objects, bundles, programs, libraries, folders of these")
      ->required();
  p.spec.set_kernel_glob("*");
  p.spec.set_sites("memory");
  p.probes = {"count-waves"};
  verb->add_option("--probe", p.probes, "Probes, each on its own (default count-waves)")
      ->type_name("NAME")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  SpecOption(verb, p.spec, "kernel", "Kernels (default *)", "GLOB", false);
  SpecOption(verb, p.spec, "sites", "Instructions (default memory)", "SELECTOR", false);
  SpecOption(verb, p.spec, "position", "before (default) or after each", "WHERE", false);
  SpecOption(verb, p.spec, "placement", "auto, trampoline or clone", "HOW", false);
  for (const BudgetOption& option : BudgetOptions()) {
    SpecOption(verb, p.spec, option.name, option.help, "N", false);
  }
  verb->add_option("--target", p.targets, "Only objects whose ISA name contains this")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  verb->add_option("--limit", p.limit, "So many objects at most, evenly spread")
      ->type_name("N")
      ->check(OneOrMore());
  AddPatched(app, a);

  verb = app.add_subcommand("completion", "Print a shell's completion script");
  verb->fallthrough();
  verb->add_option("SHELL", a.shell, "bash, zsh, fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([&a, &app] {
    a.verb = [&a, &app](const Context& c) {
      c.out.Print(CompletionScript(app, a.shell));
      return static_cast<int>(kOk);
    };
  });
}

void AddProbes(CLI::App& app, Arguments& a) {
  ProbeOptions& p = a.probe;
  const auto common = [&p](CLI::App* verb) {
    verb->add_option("OBJECT", p.object, "Compiled device functions (check: or a manifest)")
        ->required();
    verb->add_option("--entry", p.entry, "The function")->type_name("NAME");
    verb->add_option("--wavefront-size", p.wavefront_size, "That it is compiled for")
        ->type_name("LANES")
        ->check(CLI::IsMember({32, 64}));
  };
  CLI::App* verb = Verb(app, a, "check", "What the machine code of a user's probe does",
                        [&a](const Context& c) { return Check(c, a.probe); });
  common(verb);
  verb->add_option("MANIFEST", p.manifest, "Hold it to this");
  verb->add_option("--probe", p.probe, "The object, where a manifest is named first")
      ->type_name("OBJECT");
  verb = Verb(app, a, "infer", "Write the tightest manifest of a user's probe",
              [&a](const Context& c) { return Infer(c, a.probe); });
  common(verb);
  verb->add_option("--arguments", p.arguments,
                   "What to pass, in order: address, telemetry, exec, lane, site, wave, a "
                   "register, a number")
      ->type_name("LIST")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  verb->add_option("--name", p.name, "The probe's (default the function's)")->type_name("NAME");
  verb->add_option("--format", p.format, "textproto (default) or yaml")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"textproto", "yaml"}));
  verb->add_option("--telemetry-words", p.telemetry_words,
                   "64-bit words per site (default as many as it uses)")
      ->type_name("N")
      ->check(Between(1, static_cast<int>(contract::kMaxTelemetryWords)));
}

void AddOpcodes(CLI::App& app, Arguments& a) {
  OpcodesOptions& o = a.opcodes;
  CLI::App* opcodes = app.add_subcommand("opcodes", "Which opcodes are counted in which class");
  opcodes->fallthrough();
  opcodes->require_subcommand(1);
  const auto blobs = [&](CLI::App* verb, int most, const char* help) {
    verb->add_option("BLOB", o.files, help)->required()->expected(1, most);
  };
  constexpr char kTables[] = "A match table, its descriptor table, or both";
  CLI::App* verb = Verb(*opcodes, a, "show", "What a hardware profiler's tables hold",
                        [&a](const Context& c) { return OpcodesShow(c, a.opcodes); });
  blobs(verb, 2, kTables);
  verb = Verb(*opcodes, a, "check", "Whether a hardware profiler's tables are sound",
              [&a](const Context& c) { return OpcodesCheck(c, a.opcodes); });
  blobs(verb, 2, kTables);
  verb = Verb(*opcodes, a, "diff", "How two tables differ; exit code 1 if they do",
              [&a](const Context& c) { return OpcodesDiff(c, a.opcodes); });
  blobs(verb, 4, "A and B, or both tables of A and both of B");
  verb = Verb(*opcodes, a, "arm", "Make a table for profile from a hardware profiler's",
              [&a](const Context& c) { return OpcodesArm(c, a.opcodes); });
  blobs(verb, 2, kTables);
  verb->add_option("--map", o.map, "Which mnemonics take an opcode's place, as YAML")
      ->type_name("FILE")
      ->required();
  verb->add_option("--output-table", o.table, "Where the table goes")->type_name("FILE");

  verb = Verb(*opcodes, a, "profile", "How often instructions of each class ran",
              [&a](const Context& c) {
                a.opcodes.filter = a.filter;
                return OpcodesProfile(c, a.opcodes);
              });
  verb->add_option("TABLE", o.table, "Opcode table, as YAML")->required();
  AddFilter(verb, a);
  static const std::map<std::string, OpcodesOptions::By> kRows = {
      {"class", OpcodesOptions::By::kClass},
      {"row", OpcodesOptions::By::kRow},
      {"opcode", OpcodesOptions::By::kOpcode}};
  verb->add_option_function<std::string>(
          "--by", [&o](const std::string& text) { o.by = kRows.at(text); },
          "A line for each class (default), row of the table, or opcode (table only)")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"class", "row", "opcode"}));
}

// A parse error, also as JSON when that was asked for.
int UsageError(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
  OutputOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string next = i + 1 < argc ? argv[i + 1] : "";
    options.json = options.json || argument == "--output=json" || argument == "-ojson" ||
                   ((argument == "--output" || argument == "-o") && next == "json");
  }
  const Output out(options);
  const std::vector<std::string> extra = app.remaining();
  const bool unknown_verb = app.get_subcommands().empty() && !extra.empty();
  const bool option = unknown_verb && extra.front().size() > 1 && extra.front()[0] == '-';
  const int code = out.FailUsage(
      unknown_verb ? absl::StrCat("unknown ", option ? "option" : "verb", " '", extra.front(), "'")
                   : std::string(e.what()));
  out.Note("help: rjctl --help, rjctl VERB --help");
  return code;
}

// `run`'s command takes everything from its first word on, so that its options
// are never taken for ours. Returns how many arguments are ours.
int OwnArguments(int argc, char** argv) {
  static const std::set<std::string> kWithValue = {"--agent",  "--agent-socket", "--deadline-ms",
                                                   "--attach", "--socket",       "--output",
                                                   "-o",       "--color"};
  bool run = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") return run ? i : argc;
    if (kWithValue.count(argument) != 0) {
      ++i;
    } else if (argument[0] != '-') {
      if (run) return i;
      if (argument != "run") return argc;  // another verb
      run = true;
    }
  }
  return argc;
}

// The first text that goes into a message, whose strings have to be UTF-8, but
// is not. Names of files may be anything.
const std::string* NotUtf8(const Arguments& a) {
  std::vector<const std::string*> texts = {&a.kernel,
                                           &a.hash,
                                           &a.sites,
                                           &a.id,
                                           &a.shell,
                                           &a.filter.kernel,
                                           &a.filter.session,
                                           &a.filter.attachment,
                                           &a.spec.kernel_glob(),
                                           &a.spec.sites(),
                                           &a.spec.probe(),
                                           &a.spec.process_glob(),
                                           &a.spec.owner(),
                                           &a.probe.entry,
                                           &a.probe.name,
                                           &a.perturbation.spec.kernel_glob(),
                                           &a.perturbation.spec.sites(),
                                           &a.patched.kernel};
  for (const auto* list : {&a.ids, &a.run.attach, &a.admit.attach, &a.perturbation.probes,
                           &a.perturbation.targets, &a.patched.pcs, &a.probe.arguments}) {
    for (const std::string& text : *list) texts.push_back(&text);
  }
  for (const std::string* text : texts) {
    if (patch::ToUtf8(*text) != *text) return text;
  }
  return nullptr;
}

// An option that was given without anything in it: a script's variable that is not
// set, most likely, and never the same as no option.
const CLI::Option* EmptyOption(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) return option;
    }
  }
  for (const CLI::App* verb : app.get_subcommands()) {
    if (const CLI::Option* option = EmptyOption(*verb)) return option;
  }
  return nullptr;
}

int Main(int argc, char** argv) {
  google::protobuf::SetLogHandler(nullptr);  // what a file holds is ours to complain about
  Arguments a;
  CLI::App app("rjctl asks rjdbid which probes are in the GPU code that processes run.", "rjctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("rjctl ") + RJDBI_VERSION);
  app.add_option("-o,--output", a.format, "table or json; of records and report also csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  app.add_option("--color", a.output.color, "auto, always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_option("--socket", a.socket, "rjdbid's control socket (RJDBI_CONTROL_SOCKET)")
      ->type_name("PATH");
  app.footer(
      "Exit codes: 0 ok, 1 internal error, 2 usage, 3 refused or vacuous, "
      "4 partial coverage, 5 rjdbid unreachable.");
  AddRunAndAdmit(app, a);
  AddAttach(app, a);
  AddQueries(app, a);
  AddProbes(app, a);
  AddOpcodes(app, a);
  try {
    const int own = OwnArguments(argc, argv);
    a.run.command.assign(argv + own, argv + argc);
    app.parse(own, argv);
  } catch (const CLI::ParseError& e) {
    return UsageError(app, e, argc, argv);
  }
  a.output.json = a.format == "json";
  a.output.csv = a.format == "csv";
  const Output out(a.output);
  if (a.output.csv && !app.got_subcommand("records") && !app.got_subcommand("report")) {
    return out.FailUsage("csv is for records and report; other verbs have table and json");
  }
  const Context context{out, a.socket};
  if (const CLI::Option* empty = EmptyOption(app)) {
    return out.FailUsage(absl::StrCat(empty->get_name(), ": the value is empty"));
  }
  if (const std::string* bad = NotUtf8(a)) {
    return out.FailUsage(absl::StrCat("'", *bad, "' is not UTF-8"));
  }
  const int code = a.verb(context);
  return out.Finish() ? code : static_cast<int>(kInternal);
}

}  // namespace
}  // namespace rjdbi::clients

int main(int argc, char** argv) { return rjdbi::clients::Main(argc, argv); }
