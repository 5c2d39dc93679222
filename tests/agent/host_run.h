// Runs a program on the software GPU with the agent interposed.
#ifndef RJDBI_TESTS_AGENT_HOST_RUN_H_
#define RJDBI_TESTS_AGENT_HOST_RUN_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rjdbi::agent::testing {

enum Through { kNone = 0, kPreload = 1, kToolsLib = 2, kBoth = 3 };

struct Result {
  int exit_code = -1;  // -1: killed by a signal or timed out
  std::string output;
  int64_t ms = 0;
  int64_t cpu_us = 0;  // user and system
  pid_t pid = 0;
};

// A program that is told what to do while it runs: a line in, a line out.
class RunningHost {
 public:
  RunningHost(const std::vector<std::string>& command, Through through,
              std::map<std::string, std::string> environment);
  ~RunningHost();  // kills it if it still runs
  // The next line of its output, without the end of line; "" when there is none any more.
  std::string Hear();
  std::string Say(const std::string& line);
  // Closes its input and waits. 0: it ended well.
  int Finish();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
  std::string heard_;
};

// `environment` is added to this process's own. A program that takes more than
// 200 s is killed, and the test fails.
Result RunHost(const std::vector<std::string>& command, Through through,
               std::map<std::string, std::string> environment);

}  // namespace rjdbi::agent::testing

#endif  // RJDBI_TESTS_AGENT_HOST_RUN_H_
