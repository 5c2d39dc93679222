// A host that forks: fork_host MODE ROUNDS CODE_OBJECT. Exit status 0 is success.
//   exec  uses the GPU, then forks children that exec another program
//   exit  uses the GPU, then forks children that exit at once
//   both  in each round, forks before first use; parent and child both use it
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/agent/hosts/hsa_use.h"

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "fork_host: %s\n", what);
  return 1;
}

bool Wait(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int UseOnce(const char* code_object) {
  HsaUse use(code_object);
  if (!use.Init()) return Fail("init");
  if (!use.Load()) return Fail("load");
  if (!use.Unload()) return Fail("unload");
  if (hsa_shut_down() != HSA_STATUS_SUCCESS) return Fail("shut down");
  return 0;
}

// The GPU stays in use, as HIP leaves it: nothing is unloaded before the end.
int ForkInUse(bool exec, int rounds, const char* code_object) {
  HsaUse use(code_object);
  if (!use.Init() || !use.Load()) return Fail("first use");
  for (int i = 0; i < rounds; ++i) {
    pid_t child = fork();
    if (child < 0) return Fail("fork");
    if (child == 0) {
      if (!exec) std::exit(0);
      execl("/bin/true", "true", nullptr);
      _exit(127);
    }
    if (!Wait(child)) return Fail("child");
  }
  HsaUse again(code_object);
  if (!again.Init() || !again.Load() || !again.Unload()) return Fail("use after forks");
  return 0;
}

int ForkBeforeUse(int rounds, const char* code_object) {
  for (int i = 0; i < rounds; ++i) {
    pid_t first = fork();
    if (first == 0) {
      pid_t second = fork();
      if (second == 0) std::exit(UseOnce(code_object));
      int own = UseOnce(code_object);
      std::exit(Wait(second) ? own : Fail("second"));
    }
    if (!Wait(first)) return Fail("first");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return Fail("usage: MODE ROUNDS CODE_OBJECT");
  const int rounds = std::atoi(argv[2]);
  if (std::strcmp(argv[1], "both") == 0) return ForkBeforeUse(rounds, argv[3]);
  return ForkInUse(std::strcmp(argv[1], "exec") == 0, rounds, argv[3]);
}
