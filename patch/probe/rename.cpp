// Pieces first, then places, then branches.
#include "patch/probe/rename.h"

#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

// gfx10.1 loses its way at a branch with this offset, in words.
constexpr int64_t kBrokenOffset = 0x3f;
constexpr std::string_view kBrokenFamily = "gfx10.1";

class Assembler {
 public:
  Assembler(const ProbeBody& body, const RegisterRenaming& renaming, Isa& isa)
      : body_(body), renaming_(renaming), isa_(isa), pieces_(body.instructions.size()) {}

  absl::StatusOr<RenamedBody> Run() {
    if (absl::Status status = CheckBlocks(); !status.ok()) return status;
    const absl::StatusOr<std::vector<uint8_t>> branch = isa_.Assemble("s_branch 0");
    const absl::StatusOr<std::vector<uint8_t>> nop = isa_.Assemble("s_nop 0");
    if (!branch.ok()) return branch.status();
    if (!nop.ok()) return nop.status();
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (absl::Status status = Make(i, *branch); !status.ok()) return status;
    }
    LayOut();
    while (AvoidErratum(*nop)) LayOut();
    for (Piece& piece : pieces_) {
      if (piece.branch && !Encode(piece)) {
        return absl::InvalidArgumentError("a branch of the body is out of reach");
      }
    }
    RenamedBody out;
    for (const Piece& piece : pieces_) {
      out.places.push_back(piece.place);
      out.bytes.insert(out.bytes.end(), piece.bytes.begin(), piece.bytes.end());
      out.instructions += piece.instructions;
    }
    return out;
  }

 private:
  // LLVM encodes misaligned tuples without a word.
  absl::Status CheckBlocks() const {
    for (const RegisterBlock& block : body_.blocks) {
      const int shift = renaming_[block.first] - block.first;
      bool whole = shift % block.alignment == 0;
      for (int k = 1; k < block.count; ++k) {
        const int reg = block.first + k;
        whole = whole && renaming_[static_cast<size_t>(reg)] == reg + shift;
      }
      if (whole) continue;
      return absl::InvalidArgumentError(absl::StrCat(int{block.count}, " registers from ",
                                                     RegisterName(block.first),
                                                     " on are torn apart or misaligned"));
    }
    return absl::OkStatus();
  }

  struct Piece {
    std::vector<uint8_t> bytes;
    uint32_t instructions = 0;
    uint32_t place = 0;
    bool branch = false;
    std::optional<size_t> target;  // index of an instruction; nullopt: the end
  };

  bool Last(size_t i) const {
    for (size_t next = i + 1; next < pieces_.size(); ++next) {
      if (body_.roles[next] != BodyRole::kDropped) return false;
    }
    return true;
  }

  absl::Status Make(size_t i, const std::vector<uint8_t>& branch) {
    const Instruction& in = body_.instructions[i];
    Piece& piece = pieces_[i];
    if (body_.roles[i] == BodyRole::kDropped) return absl::OkStatus();
    if (body_.roles[i] == BodyRole::kReturn) {
      if (Last(i)) return absl::OkStatus();
      piece.bytes = branch;
      piece.instructions = 1;
      piece.branch = true;
      return absl::OkStatus();
    }
    piece.instructions = 1;
    if (in.target_offset) {
      piece.branch = true;
      piece.target = IndexOf(static_cast<uint64_t>(*in.target_offset));
      const auto begin = body_.code.begin() + static_cast<std::ptrdiff_t>(in.offset);
      piece.bytes.assign(begin, begin + in.size);
      return absl::OkStatus();
    }
    absl::StatusOr<std::vector<uint8_t>> made = isa_.Rename(body_.code, in.offset, renaming_);
    if (!made.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("offset ", in.offset, ": ", made.status().message()));
    }
    piece.bytes = *std::move(made);
    return absl::OkStatus();
  }

  std::optional<size_t> IndexOf(uint64_t offset) const {
    for (size_t i = 0; i < body_.instructions.size(); ++i) {
      if (body_.instructions[i].offset == offset) return i;
    }
    return std::nullopt;
  }

  void LayOut() {
    size_ = 0;
    for (Piece& piece : pieces_) {
      piece.place = size_;
      size_ += static_cast<uint32_t>(piece.bytes.size());
    }
  }

  int64_t Words(const Piece& piece) const {
    const int64_t to = piece.target ? pieces_[*piece.target].place : size_;
    return (to - piece.place - 4) / 4;
  }

  // A word behind a branch that must not have its offset is what runs when the
  // branch is not taken.
  bool AvoidErratum(const std::vector<uint8_t>& nop) {
    if (isa_.generation().family != kBrokenFamily) return false;
    for (Piece& piece : pieces_) {
      if (!piece.branch || piece.instructions != 1 || Words(piece) != kBrokenOffset) continue;
      piece.bytes.insert(piece.bytes.end(), nop.begin(), nop.end());
      piece.instructions = 2;
      return true;
    }
    return false;
  }

  bool Encode(Piece& piece) const {
    const int64_t words = Words(piece);
    if (words < INT16_MIN || words > INT16_MAX) return false;
    const auto simm16 = static_cast<uint16_t>(words);
    std::memcpy(piece.bytes.data(), &simm16, sizeof simm16);
    return true;
  }

  const ProbeBody& body_;
  const RegisterRenaming& renaming_;
  Isa& isa_;
  std::vector<Piece> pieces_;
  uint32_t size_ = 0;
};

}  // namespace

absl::StatusOr<RenamedBody> RenameBody(const ProbeBody& body, const RegisterRenaming& renaming,
                                       Isa& isa) {
  return Assembler(body, renaming, isa).Run();
}

}  // namespace rjdbi::patch
