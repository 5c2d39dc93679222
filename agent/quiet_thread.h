// Starting a thread in a host that must not notice: it gets none of the host's
// signals, and a small stack.
#ifndef RJDBI_AGENT_QUIET_THREAD_H_
#define RJDBI_AGENT_QUIET_THREAD_H_

#include <pthread.h>

#include "agent/types.h"

namespace rjdbi::agent {

// False when it cannot be had. `name` has at most 15 characters.
bool StartQuietThread(const char* name, void* (*main)(void*), void* argument, pthread_t* thread);
// Waits for its end at most until the deadline. True if it ended.
bool JoinUntil(pthread_t thread, Deadline deadline);

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_QUIET_THREAD_H_
