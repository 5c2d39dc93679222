// Completion scripts, generated from the options themselves so that they cannot
// fall behind.
#ifndef CLIENTS_COMPLETION_H_
#define CLIENTS_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace rjdbi::clients {

// shell: "bash", "zsh", "fish".
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace rjdbi::clients

#endif  // CLIENTS_COMPLETION_H_
