// What rjdbid knows of the code that counts and decisions are of.
#ifndef CLIENTS_LISTING_H_
#define CLIENTS_LISTING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/control_client.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// A pattern that matches the kernel's name, and perhaps others.
std::string GlobFor(const std::string& kernel);
// Every instruction of a kernel (mangled name), in order. Empty: the daemon does not hold
// the object's bytes any more.
absl::StatusOr<std::vector<v1::Site>> ListKernel(ControlClient& client, const std::string& sha256,
                                                 const std::string& kernel);

// A line on standard error that tells a person at a terminal how far long work is.
class Progress {
 public:
  Progress(std::string what, size_t total);
  ~Progress();  // removes the line
  void Step();

 private:
  const std::string what_;
  const size_t total_;
  const bool shown_;
  size_t done_ = 0;
};

}  // namespace rjdbi::clients

#endif  // CLIENTS_LISTING_H_
