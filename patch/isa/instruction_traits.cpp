// Translates LLVM's opcode tables. Mnemonics decide where LLVM's flags are
// known to mislead (s_setpc is no indirect branch there, DS claims M0 on every
// generation, s_waitcnt_vscnt claims memory access); flags decide the rest.
#include "patch/isa/instruction_traits.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "llvm/MC/MCInst.h"
#include "patch/isa/assembler.h"

namespace rjdbi::patch {
namespace {

// ---- registers ----

struct NamedRegister {
  std::string_view name;  // LLVM's, without a generation suffix
  uint16_t first;
  uint8_t count;
};
constexpr NamedRegister kNamedRegisters[] = {
    {"VCC_LO", kVccLo, 1},
    {"VCC_HI", kVccHi, 1},
    {"VCC", kVccLo, 2},
    {"EXEC_LO", kExecLo, 1},
    {"EXEC_HI", kExecHi, 1},
    {"EXEC", kExecLo, 2},
    {"M0", kM0, 1},
    {"SCC", kScc, 1},
    {"SRC_SCC", kScc, 1},
    {"SRC_VCCZ", kVccLo, 2},
    {"SRC_EXECZ", kExecLo, 2},
    {"SRC_FLAT_SCRATCH_BASE_LO", kFlatScratchLo, 1},
    {"SRC_FLAT_SCRATCH_BASE_HI", kFlatScratchHi, 1},
    {"SRC_FLAT_SCRATCH_BASE", kFlatScratchLo, 2},
    {"LDS_DIRECT", kM0, 1},
    {"MODE", kMode, 1},
    {"FLAT_SCR_LO", kFlatScratchLo, 1},
    {"FLAT_SCR_HI", kFlatScratchHi, 1},
    {"FLAT_SCR", kFlatScratchLo, 2},
    {"XNACK_MASK_LO", kXnackMaskLo, 1},
    {"XNACK_MASK_HI", kXnackMaskHi, 1},
    {"XNACK_MASK", kXnackMaskLo, 2},
};

struct NumberedFile {
  std::string_view prefix;
  uint16_t first, count;
};
constexpr NumberedFile kNumberedFiles[] = {
    {"SGPR", kSgpr0, 108}, {"VGPR", kVgpr0, 256}, {"AGPR", kAgpr0, 256}, {"TTMP", kTtmp0, 16}};

// LLVM keeps several copies of some registers, one per encoding.
std::string_view WithoutSuffix(std::string_view name) {
  for (std::string_view suffix :
       {"_LO16", "_HI16", "_ci", "_vi", "_gfx9plus", "_gfxpre11", "_gfx11plus"}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  return name;
}

RegisterMap::Range NumberedRange(std::string_view name) {
  // "SGPR4_SGPR5_SGPR6": the first number, and as many as there are names.
  for (const NumberedFile& file : kNumberedFiles) {
    if (!name.starts_with(file.prefix)) continue;
    const std::string_view rest = name.substr(file.prefix.size());
    unsigned number = 0, digits = 0;
    for (; digits < rest.size() && std::isdigit(static_cast<unsigned char>(rest[digits]));
         ++digits) {
      number = number * 10 + static_cast<unsigned>(rest[digits] - '0');
    }
    if (digits == 0) return {};
    if (number >= file.count) return {kNumRegisters, 0, false, true};
    uint8_t count = 1;
    for (size_t at = rest.find(file.prefix); at != std::string_view::npos;
         at = rest.find(file.prefix, at + 1)) {
      ++count;
    }
    if (number + count > file.count) return {kNumRegisters, 0, false, true};
    return {static_cast<uint16_t>(file.first + number), count, false, false};
  }
  return {};
}

RegisterMap::Range RangeOf(std::string_view llvm_name) {
  const std::string_view name = WithoutSuffix(llvm_name);
  const bool condition = name == "SRC_VCCZ" || name == "SRC_EXECZ";
  for (const NamedRegister& named : kNamedRegisters) {
    if (named.name == name) return {named.first, named.count, condition, false};
  }
  return NumberedRange(name);
}

// ---- mnemonics ----

struct FlowRow {
  std::string_view mnemonic;
  bool conditional, indirect, call, pc_relative, reads_pc;
};
// Every instruction that moves the PC, s_endpgm aside.
constexpr FlowRow kFlow[] = {
    {"s_branch", false, false, false, true, false},
    {"s_cbranch_scc0", true, false, false, true, false},
    {"s_cbranch_scc1", true, false, false, true, false},
    {"s_cbranch_vccz", true, false, false, true, false},
    {"s_cbranch_vccnz", true, false, false, true, false},
    {"s_cbranch_execz", true, false, false, true, false},
    {"s_cbranch_execnz", true, false, false, true, false},
    {"s_cbranch_cdbgsys", true, false, false, true, false},
    {"s_cbranch_cdbguser", true, false, false, true, false},
    {"s_cbranch_cdbgsys_or_user", true, false, false, true, false},
    {"s_cbranch_cdbgsys_and_user", true, false, false, true, false},
    {"s_cbranch_i_fork", true, false, false, true, true},
    {"s_cbranch_g_fork", true, true, false, false, true},
    {"s_cbranch_join", true, true, false, false, false},
    {"s_subvector_loop_begin", true, false, false, true, false},
    {"s_subvector_loop_end", true, false, false, true, false},
    {"s_setpc_b64", false, true, false, false, false},
    {"s_swappc_b64", false, true, true, false, true},
    {"s_call_b64", false, false, true, true, true},
    {"s_rfe_b64", false, true, false, false, false},
    {"s_rfe_restore_b64", false, true, false, false, false},
    // gfx1250's names, and its long branch.
    {"s_set_pc_i64", false, true, false, false, false},
    {"s_swap_pc_i64", false, true, true, false, true},
    {"s_call_i64", false, false, true, true, true},
    {"s_rfe_i64", false, true, false, false, false},
    {"s_add_pc_i64", false, true, false, false, true},
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
// LLVM's text up to the first blank, without the encoding's suffix. Stays a
// view of LLVM's string table.
std::string_view BareMnemonic(const char* text) {
  std::string_view m(text != nullptr ? text : "");
  m = m.substr(0, m.find_first_of(" \t"));
  for (std::string_view suffix : {"_e32", "_e64", "_e64_dpp", "_dpp", "_sdwa"}) {
    if (m.ends_with(suffix)) m.remove_suffix(suffix.size());
  }
  return m;
}
// LLVM 20 made the argument a reference.
template <typename Printer>
const char* MnemonicText(Printer& printer, const llvm::MCInst& inst) {
  if constexpr (requires { printer.getMnemonic(inst); }) {
    return printer.getMnemonic(inst).first;
  } else {
    return printer.getMnemonic(&inst).first;
  }
}
bool IsWait(std::string_view m) { return m.starts_with("s_waitcnt") || m.starts_with("s_wait_"); }
bool IsBarrier(std::string_view m) { return m.starts_with("s_barrier") || m == "ds_gws_barrier"; }

void SetFlow(std::string_view m, OpcodeTraits& traits) {
  Instruction& base = traits.base;
  for (const FlowRow& row : kFlow) {
    if (row.mnemonic != m) continue;
    base.branch = true;
    base.conditional = row.conditional;
    base.indirect = row.indirect;
    base.call = row.call;
    base.reads_pc = row.reads_pc;
    traits.pc_relative = row.pc_relative;
  }
  base.reads_pc |= m == "s_getpc_b64" || m == "s_get_pc_i64";
  base.ends_program = m.starts_with("s_endpgm");
  base.barrier = IsBarrier(m);
  base.is_clause = m == "s_clause";
  base.waitcnt = IsWait(m);
  base.sendmsg = m.starts_with("s_sendmsg");
  base.trap = m == "s_trap";
  base.setreg = m.starts_with("s_setreg");
}

// DS operations that exchange lanes and touch no memory.
bool IsLaneExchange(std::string_view m) {
  return m.starts_with("ds_swizzle") || m.starts_with("ds_permute") ||
         m.starts_with("ds_bpermute") || m == "ds_nop";
}
bool IsPlainDs(std::string_view m) {
  for (std::string_view prefix :
       {"ds_read", "ds_load", "ds_write", "ds_store", "ds_gws", "ds_param", "ds_direct", "lds_"}) {
    if (m.starts_with(prefix)) return true;
  }
  return false;
}
// Ordinary DS does not use M0 since gfx9; these do.
bool DsUsesM0(std::string_view m) {
  return m.starts_with("ds_gws") || m.starts_with("ds_ordered_count") ||
         m.starts_with("ds_append") || m.starts_with("ds_consume") || Contains(m, "_addtid_") ||
         m.starts_with("ds_param") || m.starts_with("ds_direct") || m.starts_with("lds_");
}

MemoryKind KindOf(uint64_t flags, std::string_view m) {
  if (flags & flag::kFlat) {
    if (flags & flag::kScratch) return MemoryKind::kScratch;
    return flags & flag::kGlobal ? MemoryKind::kGlobal : MemoryKind::kFlat;
  }
  if (flags & flag::kDs) {
    return m.starts_with("ds_gws") || m.starts_with("ds_ordered_count") ? MemoryKind::kGds
                                                                        : MemoryKind::kLds;
  }
  if (flags & flag::kSmem) return MemoryKind::kScalar;
  if (flags & (flag::kMubuf | flag::kMtbuf)) return MemoryKind::kBuffer;
  return flags & flag::kMimg ? MemoryKind::kImage : MemoryKind::kNone;
}

void SetMemory(const llvm::MCInstrDesc& desc, std::string_view m, OpcodeTraits& traits) {
  Instruction& base = traits.base;
  const MemoryKind kind = KindOf(desc.TSFlags, m);
  traits.is_ds = (desc.TSFlags & flag::kDs) != 0;
  if (m.starts_with("tensor_")) {  // between memory and LDS, by a unit of its own
    base.memory = MemoryKind::kGlobal;
    base.load = m.starts_with("tensor_load");
    base.store = !base.load;
    return;
  }
  if (kind == MemoryKind::kNone || IsLaneExchange(m)) return;
  if (m.starts_with("ds_gws")) {  // synchronisation, no data
    base.memory = kind;
    return;
  }
  const bool atomic = Contains(m, "atomic") || (traits.is_ds && !IsPlainDs(m) && desc.mayStore());
  base.atomic = atomic;
  base.load = !atomic && desc.mayLoad() && !Contains(m, "store") && !Contains(m, "write");
  base.store = !atomic && !base.load && desc.mayStore();
  base.returns_value = atomic && desc.getNumDefs() > 0;
  // Cache control and clocks share the encodings but access nothing.
  if (base.atomic || base.load || base.store || kind == MemoryKind::kGds) base.memory = kind;
}

// ---- lanes ----

bool AnyOf(std::string_view m, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [m](std::string_view part) { return Contains(m, part); });
}
bool EndsWithAny(std::string_view m, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [m](std::string_view end) { return m.ends_with(end); });
}

// Operations whose lanes read or write other lanes' registers, or all lanes'
// whatever EXEC is. DPP does so in its second word.
bool CrossesLanes(uint64_t flags, std::string_view m) {
  return (flags & flag::kDpp) != 0 ||
         AnyOf(m, {"lane", "v_mfma", "v_smfma", "wmma", "v_swmmac", "movrel", "swaprel", "interp",
                   "_load_tr", "_tr_b", "_lds_"});
}

// 32 and 64 bit results: what is narrower may leave the rest of a register. Those
// of the second list are narrower than they end, or add to the destination.
bool WritesWholeRegisters(std::string_view m) {
  return EndsWithAny(m, {"_b32", "_u32", "_i32", "_f32", "_b64", "_u64", "_i64", "_f64"}) &&
         !AnyOf(m, {"cvt_f16", "cvt_u16", "cvt_i16", "cvt_bf16", "cvt_norm", "cvt_pk", "cvt_sr",
                    "cvt_fp8", "cvt_bf8", "cvt_scale", "ashr_pk", "mac", "dot", "mix", "v_dual_"});
}
// Loads extend to the register, but for those into one half.
bool LoadsWholeRegisters(std::string_view m) {
  return EndsWithAny(
             m, {"dword", "dwordx2", "dwordx3", "dwordx4", "ubyte", "sbyte", "ushort", "sshort",
                 "_b32", "_b64", "_b96", "_b128", "_u8", "_i8", "_u16", "_i16"}) &&
         !Contains(m, "d16");
}

void SetLanes(uint64_t flags, std::string_view m, Instruction& base) {
  const bool by_lane = base.memory == MemoryKind::kGlobal || base.memory == MemoryKind::kFlat ||
                       base.memory == MemoryKind::kScratch || base.memory == MemoryKind::kLds ||
                       base.memory == MemoryKind::kBuffer;
  base.lanewise = (base.valu || by_lane) && !CrossesLanes(flags, m);
  if (!base.lanewise || (flags & flag::kSdwa) != 0) return;
  // Buffer loads may be asked for a status word, or for formats.
  base.writes_whole =
      base.valu ? WritesWholeRegisters(m)
                : base.load && base.memory != MemoryKind::kBuffer && LoadsWholeRegisters(m);
}

// ---- implicit registers ----

// LLVM names the 64-bit mask even in wave32.
uint8_t MaskWidth(uint16_t first, uint8_t count, std::string_view m, uint32_t wavefront_size) {
  const bool mask = (first == kVccLo || first == kExecLo) && count == 2;
  const bool scalar64 = m.starts_with("s_") && m.ends_with("_b64");
  return mask && wavefront_size == 32 && !scalar64 ? 1 : count;
}

void SetImplicit(const llvm::MCInstrDesc& desc, const RegisterMap& map, uint32_t wavefront_size,
                 OpcodeTraits& traits) {
  const std::string_view m = traits.mnemonic;
  auto add = [&](llvm::MCPhysReg reg, RegisterSet& set, bool is_use) {
    const RegisterMap::Range range = map.ranges[reg];
    if (range.count == 0) return;
    // Every VALU operation reads MODE; nothing depends on that but setreg.
    if (is_use && range.first == kMode) return;
    if (is_use && range.first == kM0 && traits.is_ds && !DsUsesM0(m)) return;
    set.Add(range.first, MaskWidth(range.first, range.count, m, wavefront_size));
  };
  for (llvm::MCPhysReg reg : desc.implicit_uses()) add(reg, traits.uses, true);
  for (llvm::MCPhysReg reg : desc.implicit_defs()) add(reg, traits.defs, false);
  const bool writes_mode = traits.base.setreg || m == "s_round_mode" || m == "s_denorm_mode" ||
                           m.starts_with("s_set_gpr_idx");
  if (!writes_mode) traits.defs.Remove(kMode);
  if (m == "s_round_mode" || m == "s_denorm_mode") {
    traits.defs.Add(kMode);
    traits.partial_defs.Add(kMode);
  }
  if (m.starts_with("s_set_gpr_idx")) traits.partial_defs |= traits.defs;
  if (m.starts_with("s_cbranch_") && (m.ends_with("_fork") || m.ends_with("_join"))) {
    traits.defs.Add(kExecLo, 2);
    traits.uses.Add(kExecLo, 2);
  }
}

}  // namespace

RegisterMap RegisterMap::Build(const llvm::MCRegisterInfo& info) {
  RegisterMap map;
  map.ranges.resize(info.getNumRegs());
  for (unsigned reg = 1; reg < info.getNumRegs(); ++reg)
    map.ranges[reg] = RangeOf(info.getName(reg));
  return map;
}

OpcodeTraits BuildTraits(const LlvmTarget& target, const RegisterMap& map, const llvm::MCInst& inst,
                         uint32_t wavefront_size) {
  OpcodeTraits traits;
  const llvm::MCInstrDesc& desc = target.instructions->get(inst.getOpcode());
  traits.mnemonic = BareMnemonic(MnemonicText(*target.printer, inst));
  const std::string_view m = traits.mnemonic;
  Instruction& base = traits.base;
  base.opcode = m;
  SetFlow(m, traits);
  SetMemory(desc, m, traits);
  const uint64_t flags = desc.TSFlags;
  // LDS-DMA loads carry the VALU flag as well.
  base.valu = (flags & flag::kValu) != 0 && base.memory == MemoryKind::kNone;
  base.salu = (flags & flag::kSalu) != 0;
  base.trans = (flags & flag::kTrans) != 0;
  base.mfma = (flags & flag::kMai) != 0 && (m.starts_with("v_mfma") || m.starts_with("v_smfma"));
  SetLanes(flags, m, base);
  SetImplicit(desc, map, wavefront_size, traits);
  traits.reads_hwreg = m.starts_with("s_getreg");
  traits.writes_hwreg = base.setreg;
  traits.indexes_vgprs = m.starts_with("v_movrel") || m.starts_with("v_swaprel");
  traits.indexes_sgprs = m.starts_with("s_movrel");
  traits.conditional_write = m.starts_with("s_cmov");
  const bool half_load = base.load && Contains(m, "_d16") && base.memory != MemoryKind::kImage;
  traits.reads_destination = m.starts_with("s_bitset") || half_load;
  return traits;
}

// ---- self test ----

namespace {

struct FlagProbe {
  std::string_view processor, text;
  uint64_t set, clear;
};
constexpr uint64_t kEncodings = flag::kSopk | flag::kSopp | flag::kMubuf | flag::kMtbuf |
                                flag::kSmem | flag::kMimg | flag::kFlat | flag::kDs;
constexpr uint64_t kKinds = kEncodings | flag::kSdwa | flag::kDpp | flag::kTrans | flag::kGlobal |
                            flag::kMai | flag::kScratch;
constexpr FlagProbe kProbes[] = {
    {"gfx90a", "s_add_u32 s0, s1, s2", flag::kSalu, kKinds | flag::kValu},
    {"gfx90a", "s_movk_i32 s0, 5", flag::kSalu | flag::kSopk, flag::kValu | flag::kSopp},
    {"gfx90a", "s_nop 0", flag::kSalu | flag::kSopp, flag::kValu | flag::kSopk},
    {"gfx90a", "v_add_f32 v0, v1, v2", flag::kValu, kKinds | flag::kSalu},
    {"gfx90a", "v_rcp_f32 v0, v1", flag::kValu | flag::kTrans, flag::kSalu | kEncodings},
    {"gfx90a", "buffer_load_dword v0, off, s[0:3], 0", flag::kMubuf,
     flag::kSalu | flag::kValu | flag::kMtbuf | flag::kFlat | flag::kDs | flag::kSmem},
    {"gfx1030", "tbuffer_load_format_x v0, off, s[0:3], format:1, 0", flag::kMtbuf,
     flag::kSalu | flag::kValu | flag::kMubuf | flag::kFlat | flag::kDs | flag::kSmem},
    {"gfx90a", "s_load_dword s0, s[2:3], 0", flag::kSmem,
     flag::kValu | flag::kMubuf | flag::kFlat | flag::kDs},
    {"gfx1030", "image_load v0, v1, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D unorm", flag::kMimg,
     flag::kValu | flag::kMubuf | flag::kFlat | flag::kDs | flag::kSmem},
    {"gfx90a", "flat_load_dword v0, v[2:3]", flag::kFlat,
     flag::kGlobal | flag::kScratch | flag::kDs | flag::kValu | flag::kMubuf},
    {"gfx90a", "global_load_dword v0, v[2:3], off", flag::kFlat | flag::kGlobal,
     flag::kScratch | flag::kDs | flag::kValu},
    {"gfx90a", "scratch_load_dword v0, off, s0", flag::kFlat | flag::kScratch,
     flag::kGlobal | flag::kDs | flag::kValu},
    {"gfx90a", "ds_add_u32 v0, v1", flag::kDs, flag::kFlat | flag::kValu | flag::kMubuf},
    {"gfx90a", "v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]", flag::kValu | flag::kMai,
     flag::kSalu | kEncodings | flag::kTrans},
    {"gfx1100", "v_add_f32 v0, v1, v2", flag::kValu, kKinds | flag::kSalu},
    {"gfx90a", "v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf", flag::kDpp,
     flag::kSdwa},
    {"gfx1100", "v_add_f32_e64_dpp v0, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf", flag::kDpp,
     flag::kSdwa},
    {"gfx1030", "v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0]", flag::kDpp, flag::kSdwa},
    {"gfx90a", "v_mov_b32_sdwa v0, v1 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
     flag::kSdwa, flag::kDpp},
    {"gfx1200", "global_load_b32 v0, v[2:3], off", flag::kFlat | flag::kGlobal,
     flag::kScratch | flag::kDs | flag::kValu},
};

absl::Status CheckProbe(const FlagProbe& probe) {
  TargetId id;
  id.processor = std::string(probe.processor);
  absl::StatusOr<std::unique_ptr<LlvmTarget>> target = LlvmTarget::Create(id, 64);
  if (!target.ok()) return target.status();
  absl::StatusOr<std::vector<uint8_t>> code = AssembleText(**target, probe.text);
  if (!code.ok()) return code.status();
  llvm::MCInst inst;
  uint64_t size = 0;
  if ((*target)->disassembler->getInstruction(inst, size, *code, 0, llvm::nulls()) ==
      llvm::MCDisassembler::Fail) {
    return absl::InternalError("not decodable");
  }
  const uint64_t flags = (*target)->instructions->get(inst.getOpcode()).TSFlags;
  if ((flags & probe.set) != probe.set || (flags & probe.clear) != 0) {
    return absl::InternalError(absl::StrCat("flags ", absl::Hex(flags)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFlagPositions() {
  static const absl::Status* const result = [] {
    for (const FlagProbe& probe : kProbes) {
      absl::Status status = CheckProbe(probe);
      if (!status.ok()) {
        return new absl::Status(absl::InternalError(
            absl::StrCat("unknown LLVM instruction flags: \"", std::string(probe.text), "\" on ",
                         std::string(probe.processor), ": ", status.message())));
      }
    }
    return new absl::Status();
  }();
  return *result;
}

}  // namespace rjdbi::patch
