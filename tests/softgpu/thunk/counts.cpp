// See counts.h.
#include "tests/softgpu/thunk/counts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tests/softgpu/thunk/log.h"

namespace softgpu {
namespace {

std::string Id(uint64_t n) { return std::to_string(getpid()) + "." + std::to_string(n); }

std::string Hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof(text), "0x%lx", value);
  return text;
}

std::string Triple(const uint32_t (&v)[3]) {
  return std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]);
}

// "foo" of the descriptor symbol "foo.kd".
std::string KernelName(std::string symbol) {
  const std::string suffix = ".kd";
  if (symbol.size() > suffix.size() &&
      symbol.compare(symbol.size() - suffix.size(), suffix.size(), suffix) == 0) {
    symbol.resize(symbol.size() - suffix.size());
  }
  return symbol.empty() ? "-" : symbol;
}

}  // namespace

CountJournal::CountJournal(const std::string& path, const std::string& target, AddressSpace* space)
    : path_(path), target_(target), space_(space) {
  const size_t at = path_.find("%p");
  if (at != std::string::npos) path_.replace(at, 2, std::to_string(getpid()));
}

void CountJournal::SetDebugList(uint64_t r_debug) {
  std::lock_guard<std::mutex> lock(mutex_);
  loaded_.SetDebugList(r_debug);
}

CountJournal::Home CountJournal::FindHome(uint64_t address, std::string* out) {
  const std::optional<Allocation> allocation = space_->Find(address);
  if (!allocation) return {};
  auto known = homes_.find(allocation->serial);
  if (known != homes_.end()) return known->second;
  Home home;
  home.begin = allocation->base;
  home.end = allocation->base + allocation->size;
  if (std::optional<CodeObject> object = loaded_.FindIn(home.begin, home.end)) {
    home.id = next_code_++;
    home.bias = object->bias;
    *out += "code " + Id(home.id) + " base=" + Hex(home.bias) + " uri=" + object->uri + "\n";
  }
  homes_[allocation->serial] = home;
  return home;
}

uint64_t CountJournal::FindKernel(const Dispatch& dispatch, std::string* out) {
  const uint64_t descriptor = dispatch.kernel_descriptor;
  const Home home = FindHome(descriptor, out);
  auto [it, added] = kernels_.try_emplace({home.id, descriptor}, next_kernel_);
  if (!added) return it->second;
  ++next_kernel_;
  int64_t entry_offset;  // at byte 16 of a kernel descriptor
  memcpy(&entry_offset, reinterpret_cast<const char*>(descriptor) + 16, sizeof(entry_offset));
  std::string symbol;
  if (home.id != 0) symbol = loaded_.SymbolAt(home.bias, home.end, descriptor - home.bias);
  *out +=
      "kernel " + Id(it->second) + " code=" + Id(home.id) + " kd=" + Hex(descriptor - home.bias) +
      " entry=" + Hex(descriptor + entry_offset - home.bias) + " name=" + KernelName(symbol) + "\n";
  return it->second;
}

void CountJournal::Record(const Dispatch& dispatch, const std::map<uint64_t, PcCount>& counts) {
  if (!enabled()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out;
  if (!started_) {
    out += "target " + std::to_string(getpid()) + " " + target_ + "\n";
    out += "code " + Id(0) + " base=0x0 uri=-\n";
    started_ = true;
  }
  const std::string kernel = Id(FindKernel(dispatch, &out));
  out += "dispatch " + kernel + " grid=" + Triple(dispatch.grid) +
         " workgroup=" + Triple(dispatch.workgroup) + "\n";
  Home home;
  for (const auto& [pc, count] : counts) {
    if (pc < home.begin || pc >= home.end) home = FindHome(pc, &out);
    out += "pc " + kernel + " " + Id(home.id) + " " + Hex(pc - home.bias) + " " +
           std::to_string(count.waves) + " " + std::to_string(count.lanes) + "\n";
  }
  Append(out);
}

void CountJournal::Append(const std::string& text) {
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const bool written =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written) Complain("SOFTGPU_COUNTS=%s: %s", path_.c_str(), strerror(errno));
  if (fd >= 0) close(fd);
}

}  // namespace softgpu
