#include "clients/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "clients/opcodes/table.h"
#include "contract/catalogue.h"
#include "contract/inspect.h"
#include "patch/codeobject/code_object.h"
#include "patch/codeobject/device_object.h"

namespace rjdbi::clients {

namespace {

// What a link leads to, be it there or not: writing replaces that, not the link.
absl::StatusOr<std::string> BehindLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux
  std::error_code error;
  std::filesystem::path at = path;
  for (int links = 0; std::filesystem::is_symlink(at, error); ++links) {
    if (links == kMostLinks) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(ELOOP)));
    }
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
    at = at.parent_path() / next;  // an absolute one replaces what is before it
  }
  return at.string();
}

// `limit`: what is said of a file of more than `most` bytes.
absl::StatusOr<std::string> ReadUpTo(const std::string& path, uint64_t most,
                                     const std::string& limit) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!error && !std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ",
        std::filesystem::exists(status) ? "not a regular file" : "there is no such file"));
  }
  const auto size = error ? 0 : std::filesystem::file_size(path, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  if (size > most) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", FormatBytes(size), "; ", limit));
  }
  std::string bytes(size, '\0');
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", errno != 0 ? std::strerror(errno) : "it has become shorter meanwhile"));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  constexpr uint64_t kMost = patch::CodeObject::kMaxSize;
  return ReadUpTo(path, kMost,
                  absl::StrCat("a code object has at most ", FormatBytes(kMost), " (RJD-O002)"));
}

absl::StatusOr<std::string> ReadProbeFile(const std::string& path) {
  constexpr uint64_t kMost = patch::DeviceObject::kMaxSize;
  return ReadUpTo(path, kMost, absl::StrCat("a probe's files have at most ", FormatBytes(kMost)));
}

absl::StatusOr<std::string> ReadOpcodeFile(const std::string& path) {
  return ReadUpTo(path, kMostTableBytes,
                  absl::StrCat("an opcode table has at most ", FormatBytes(kMostTableBytes)));
}

bool OneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  const auto real = [&error](const std::string& path) {
    return std::filesystem::weakly_canonical(BehindLinks(path).value_or(path), error);
  };
  return a == b || (real(a) == real(b) && !error);
}

bool IsElf(const std::string& bytes) { return bytes.compare(0, 4, "\177ELF") == 0; }

std::string WrongKind(const std::string& bytes) {
  constexpr char kBundle[] = "__CLANG_OFFLOAD_BUNDLE__";
  constexpr size_t kMachineOffset = 18;
  if (bytes.compare(0, sizeof(kBundle) - 1, kBundle) == 0) {
    return "this is an offload bundle: take the code object out with clang-offload-bundler";
  }
  if (!IsElf(bytes)) {
    return "give a code object by itself, as roc-obj-extract or clang-offload-bundler take it "
           "out of a program";
  }
  if (bytes.size() > kMachineOffset + 1 &&
      static_cast<unsigned char>(bytes[kMachineOffset]) != 224) {
    return "this ELF file is for a host processor: give the code object inside it, as "
           "roc-obj-extract or clang-offload-bundler take it out";
  }
  return "";
}

int FailOnFile(const Context& context, const std::string& file, const std::string& bytes,
               const absl::Status& status) {
  // Bytes that are no code object, or none that can be worked on, are the caller's.
  const bool unsupported = absl::IsUnimplemented(status) || absl::IsNotFound(status);
  const bool callers = unsupported || absl::IsDataLoss(status) || absl::IsResourceExhausted(status);
  const auto kind = callers ? absl::StatusCode::kInvalidArgument : status.code();
  const int code = context.out.Fail(absl::Status(
      kind, absl::StrCat(file, ": ", IsElf(bytes) ? status.message() : "not an ELF file")));
  if (std::string hint = WrongKind(bytes); !hint.empty()) {
    context.out.Note("help: " + hint);
  } else if (unsupported) {
    context.out.Note("help: rjctl explain " + std::string(contract::id::kObjectUnsupported));
  }
  return code;
}

void NoteNoKernel(const Context& context, const std::string& bytes, const std::string& kernel) {
  const std::string near = contract::NearMiss(AsBytes(bytes), kernel, "");
  context.out.Note(kernel.empty()
                       ? "note: the code object has no kernels"
                       : absl::StrCat("note: no kernel of the file matches '", Printable(kernel),
                                      "'; ", near.empty() ? "" : Printable(near) + " ",
                                      "rjctl kernels FILE lists all"));
}

void NoteWrongKind(const Context& context, const std::string& file, const std::string& bytes) {
  const std::string hint = WrongKind(bytes);
  if (hint.empty()) return;
  context.out.Note(
      absl::StrCat("help: ", Printable(file), ": ", IsElf(bytes) ? "" : "not an ELF file; ", hint));
}

// Whole or not at all: what is there may be the only copy, of the input even.
absl::Status WriteFile(const std::string& named, std::string_view bytes) {
  std::error_code error;
  const absl::StatusOr<std::string> resolved = BehindLinks(named);
  if (!resolved.ok()) return resolved.status();
  const std::string& path = *resolved;
  const auto status = std::filesystem::status(path, error);
  const bool replace = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  const std::string target = replace ? absl::StrCat(path, ".", getpid(), ".tmp") : path;
  errno = 0;
  std::ofstream file(target, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  bool ok = !file.fail();
  if (ok && replace) {
    if (std::filesystem::exists(status)) {
      std::filesystem::permissions(target, status.permissions(), error);
    }
    ok = std::rename(target.c_str(), path.c_str()) == 0;
  }
  if (ok) return absl::OkStatus();
  const int problem = errno;
  if (replace) std::remove(target.c_str());
  return absl::InvalidArgumentError(
      absl::StrCat(named, ": ", problem != 0 ? std::strerror(problem) : "a write failed"));
}

}  // namespace rjdbi::clients
