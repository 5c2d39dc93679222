// See the header.
#include "clients/listing.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace rjdbi::clients {

std::string GlobFor(const std::string& kernel) {
  std::string glob = kernel;
  std::replace(glob.begin(), glob.end(), '[', '?');
  return glob;
}

absl::StatusOr<std::vector<v1::Site>> ListKernel(ControlClient& client, const std::string& sha256,
                                                 const std::string& kernel) {
  v1::ListSitesRequest request;
  request.set_code_object_sha256(sha256);
  request.set_kernel_glob(GlobFor(kernel));
  v1::ListSitesReply reply;
  if (absl::Status s = client.ListSites(request, reply); !s.ok()) return s;
  std::vector<v1::Site> sites;
  for (v1::Site& site : *reply.mutable_sites()) {
    if (site.location().kernel() == kernel) sites.push_back(std::move(site));
  }
  std::sort(sites.begin(), sites.end(), [](const v1::Site& a, const v1::Site& b) {
    return a.location().kernel_offset() < b.location().kernel_offset();
  });
  return sites;
}

Progress::Progress(std::string what, size_t total)
    : what_(std::move(what)), total_(total), shown_(isatty(2) != 0) {}

Progress::~Progress() {
  if (shown_ && done_ > 0) std::fprintf(stderr, "\r\033[K");
}

void Progress::Step() {
  ++done_;
  if (shown_) std::fprintf(stderr, "\r\033[K%s: %zu of %zu", what_.c_str(), done_, total_);
}

}  // namespace rjdbi::clients
