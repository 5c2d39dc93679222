#include "clients/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "clients/spec_text.h"
#include "contract/catalogue.h"
#include "contract/manifest.h"

namespace rjdbi::clients {
namespace {

std::string LongNames(const CLI::App& app) {
  std::string names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&names, " --", name);
  }
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (app.get_parent() != nullptr) absl::StrAppend(&names, LongNames(*verb));
  }
  return names;
}

std::string VerbNames(const CLI::App& app) {
  std::string names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    absl::StrAppend(&names, names.empty() ? "" : " ", verb->get_name());
  }
  return names;
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string ReasonIds() {
  std::string ids;
  for (const contract::CatalogueEntry& entry : contract::All()) {
    absl::StrAppend(&ids, ids.empty() ? "" : " ", std::string(entry.id));
  }
  return ids;
}

// Of verbs that have verbs of their own: what may stand behind them.
std::string BashVerbsBehind(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_subcommands(nullptr).empty()) continue;
    absl::StrAppend(&cases, "    ", verb->get_name(), ") COMPREPLY=($(compgen -W '",
                    VerbNames(*verb), "' -- \"$word\")); return ;;\n");
  }
  return cases;
}

// The first column of a table of `rjctl status`, by the table's first heading.
std::string StatusColumn(const std::string& rjctl, const std::string& heading) {
  return absl::StrCat(rjctl, " status 2>/dev/null | awk '$1 == \"", heading,
                      "\" {on = 1; next} NF == 0 {on = 0} on {print $1}'");
}

// zsh reads the same script through bashcompinit.
std::string Bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    absl::StrAppend(&cases, "    ", verb->get_name(), ") options=\"", LongNames(*verb), "\" ;;\n");
  }
  return absl::StrCat(
      "_rjctl() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb= options= w\n"
      "  for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \" ",
      VerbNames(app),
      " \" in *\" $w \"*) verb=$w; break ;; esac\n"
      "  done\n"
      "  case $before in\n"
      "    -o|--output) COMPREPLY=($(compgen -W 'table json csv' -- \"$word\")); return ;;\n"
      "    --color) COMPREPLY=($(compgen -W 'auto always never' -- \"$word\")); return ;;\n"
      "    --probe) COMPREPLY=($(compgen -W '",
      absl::StrReplaceAll(contract::ProbeNames(), {{",", ""}}),
      "' -- \"$word\")); return ;;\n"
      "    --placement) COMPREPLY=($(compgen -W '",
      PlacementNames(), "' -- \"$word\")); return ;;\n    --mode) COMPREPLY=($(compgen -W '",
      ModeNames(), "' -- \"$word\")); return ;;\n    --reduce) COMPREPLY=($(compgen -W '",
      ReductionNames(),
      "' -- \"$word\")); return ;;\n"
      "    --position) COMPREPLY=($(compgen -W 'before after' -- \"$word\")); return ;;\n"
      "    --format) COMPREPLY=($(compgen -W 'folded pprof perfetto textproto yaml' -- "
      "\"$word\")); return ;;\n"
      "    --sort) COMPREPLY=($(compgen -W 'place count' -- \"$word\")); return ;;\n"
      "    --by) w='site opcode kernel'; [[ $verb == opcodes ]] && w='class row opcode'\n"
      "      COMPREPLY=($(compgen -W \"$w\" -- \"$word\")); return ;;\n"
      "    "
      "--socket|--agent|--agent-socket|--output-image|--output-map|--output-file|--html|--original"
      "|--output-table|--map|--probe-object|--probe-manifest)"
      " COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
      "    --attachment) COMPREPLY=($(compgen -W \"$(",
      StatusColumn("\"${COMP_WORDS[0]}\"", "ATTACHMENT"),
      ")\" -- \"$word\")); return ;;\n"
      "    --session) COMPREPLY=($(compgen -W \"$(",
      StatusColumn("\"${COMP_WORDS[0]}\"", "SESSION"),
      ")\" -- \"$word\")); return ;;\n"
      "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")); return ;;\n",
      BashVerbsBehind(app),
      "  esac\n"
      "  case $verb in\n",
      cases, "    *) COMPREPLY=($(compgen -W \"", VerbNames(app), LongNames(app),
      "\" -- \"$word\")); return ;;\n"
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options",
      LongNames(app),
      "\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $verb in\n"
      "    run) COMPREPLY=($(compgen -c -f -- \"$word\")) ;;\n"
      "    admit|kernels|sites|map|unpatch|check|infer|opcodes) COMPREPLY=($(compgen -f -- "
      "\"$word\")) ;;\n"
      "    detach) COMPREPLY=($(compgen -W \"$(",
      StatusColumn("\"${COMP_WORDS[0]}\"", "ATTACHMENT"),
      ")\" -- \"$word\")) ;;\n"
      "    explain) COMPREPLY=($(compgen -W '",
      ReasonIds(),
      "' -- \"${word^^}\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _rjctl rjctl\n");
}

std::string Fish(const CLI::App& app) {
  std::string script = "complete -c rjctl -f\n";
  const auto options = [&script](const CLI::App& from, const std::string& condition) {
    for (const CLI::Option* option : from.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&script, "complete -c rjctl", condition, " -l ", name,
                        option->get_items_expected_max() > 0 ? " -r" : "", " -d ",
                        Quoted(option->get_description()), "\n");
      }
    }
  };
  options(app, "");
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    absl::StrAppend(&script, "complete -c rjctl -n __fish_use_subcommand -a ", verb->get_name(),
                    " -d ", Quoted(verb->get_description()), "\n");
    const std::string seen = absl::StrCat(" -n '__fish_seen_subcommand_from ", verb->get_name());
    options(*verb, seen + "'");
    for (const CLI::App* behind : verb->get_subcommands(nullptr)) {
      absl::StrAppend(&script, "complete -c rjctl", seen, "; and not __fish_seen_subcommand_from ",
                      VerbNames(*verb), "' -a ", behind->get_name(), " -d ",
                      Quoted(behind->get_description()), "\n");
      options(*behind,
              absl::StrCat(seen, "; and __fish_seen_subcommand_from ", behind->get_name(), "'"));
    }
  }
  for (const char* verb : {"run", "admit", "kernels", "sites", "map", "unpatch", "opcodes"}) {
    absl::StrAppend(&script, "complete -c rjctl -n '__fish_seen_subcommand_from ", verb, "' -F\n");
  }
  absl::StrAppend(&script, "complete -c rjctl -n '__fish_seen_subcommand_from detach' -a ",
                  Quoted(absl::StrCat("(", StatusColumn("rjctl", "ATTACHMENT"), ")")), "\n",
                  "complete -c rjctl -n '__fish_seen_subcommand_from explain' -a ",
                  Quoted(ReasonIds()), "\n");
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return Fish(app);
  if (shell == "bash") return Bash(app);
  return absl::StrCat("#compdef rjctl\nautoload -U +X bashcompinit && bashcompinit\n", Bash(app));
}

}  // namespace rjdbi::clients
