// Around the agent's own work on a host's thread.
#ifndef RJDBI_AGENT_HOST_UNTOUCHED_H_
#define RJDBI_AGENT_HOST_UNTOUCHED_H_

#include <pthread.h>

#include <cerrno>

namespace rjdbi::agent {

// Keeps errno. A thread cancelled inside our locks would leave them held: not here.
class HostUntouched {
 public:
  HostUntouched() : errno_(errno) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_); }
  ~HostUntouched() {
    int ignored;
    pthread_setcancelstate(cancel_, &ignored);
    errno = errno_;
  }
  HostUntouched(const HostUntouched&) = delete;
  HostUntouched& operator=(const HostUntouched&) = delete;

 private:
  int errno_;
  int cancel_;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_HOST_UNTOUCHED_H_
