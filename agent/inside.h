// Whether the calling thread is in the agent already: the API table's hooks, other tools
// and ROCR itself call on through us.
#ifndef RJDBI_AGENT_INSIDE_H_
#define RJDBI_AGENT_INSIDE_H_

namespace rjdbi::agent {

// More than zero: pass on. initial-exec: no allocation at first use, and no dependency
// on the linker.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local int t_depth;

class Inside {
 public:
  Inside() { ++t_depth; }
  ~Inside() { --t_depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_INSIDE_H_
