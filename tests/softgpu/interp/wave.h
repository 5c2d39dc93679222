// State of one wavefront and of the workgroup it belongs to, and the decoded
// form of an instruction: the interface between the interpreter's parts.
//
// scalar.cpp, memory.cpp and valu_*.cpp supply handlers; decode.cpp binds each
// decoded instruction to its handler once; machine.cpp runs them.
#ifndef TESTS_SOFTGPU_INTERP_WAVE_H_
#define TESTS_SOFTGPU_INTERP_WAVE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace softgpu {

// GPU generation; features are asked of Target, never compared by name.
enum class Gen { kGfx9, kGfx90a, kGfx940, kGfx10, kGfx10_3, kGfx11, kGfx12, kGfx12_5 };

struct Target {
  std::string name;  // "gfx90a"
  Gen gen = Gen::kGfx9;
  bool AtLeast10() const { return gen >= Gen::kGfx10; }
  bool AtLeast11() const { return gen >= Gen::kGfx11; }
  bool AtLeast12() const { return gen >= Gen::kGfx12; }
  bool Gfx125() const { return gen == Gen::kGfx12_5; }
  bool Gfx90aPlus() const { return gen == Gen::kGfx90a || gen == Gen::kGfx940; }
  bool ArchitectedFlatScratch() const { return gen == Gen::kGfx940 || AtLeast11(); }
};

// Scalar register numbers, normalised across generations (decode.cpp maps each
// generation's encoding to these).
enum SReg : uint16_t {
  kSgpr0 = 0,  // s0..s105
  kVccLo = 106,
  kVccHi = 107,
  kTtmp0 = 108,  // ttmp0..15
  kM0 = 124,
  kNull = 125,  // reads 0, writes vanish
  kExecLo = 126,
  kExecHi = 127,
  kFlatScrLo = 128,
  kFlatScrHi = 129,
  kXnackLo = 130,
  kXnackHi = 131,
  kSharedBase = 132,
  kSharedLimit = 133,
  kPrivateBase = 134,
  kPrivateLimit = 135,
  kVccz = 136,
  kExecz = 137,
  kScc = 138,
  kLdsDirect = 139,
  kNumSRegs = 140,
};

struct Operand {
  enum class Kind : uint8_t { kNone, kSgpr, kVgpr, kAgpr, kImm };
  Kind kind = Kind::kNone;
  uint8_t dwords = 1;  // register width in dwords (from the register class)
  uint16_t reg = 0;    // SReg, or VGPR/AGPR number
  // kImm: the 32-bit literal or inline constant *as its 32-bit pattern for a
  // 32-bit operand* (floats as IEEE bits); imm64 holds the pattern for a 64-bit
  // operand (inline ints sign-extended, inline floats as doubles, literals per
  // the ISA's 64-bit rule); imm16 the pattern for a 16-bit operand.
  uint32_t imm = 0;
  uint64_t imm64 = 0;
  uint16_t imm16 = 0;
  // Input modifiers (VOP3/SDWA/DPP). neg applies after abs.
  bool neg = false, abs = false, sext = false;
  // VOP3P / 16-bit halves. op_sel: which half feeds the low result (or, for
  // non-packed 16-bit VOP3, the only one); op_sel_hi: the high result.
  bool op_sel = false, op_sel_hi = true;
  bool neg_hi = false;   // VOP3P: negate the high half (neg is the low half)
  bool hi16 = false;     // gfx11+ true16 register halves
  uint8_t sdwa_sel = 6;  // 0-3 BYTE_n, 4-5 WORD_n, 6 DWORD
};

struct Wave;
struct Inst;
struct DualPair;

enum class Step : uint8_t {
  kNext,     // pc += size
  kJumped,   // handler set pc
  kBarrier,  // reached s_barrier; pc is advanced, the scheduler parks the wave
  kEnd,      // s_endpgm
  kYield,    // s_sleep and friends: let others run; pc is advanced
  kFault,    // wave.fault is filled in
};
using Handler = Step (*)(Wave&, const Inst&);

struct Dpp {
  bool present = false;
  bool dpp8 = false;
  uint32_t ctrl = 0;  // dpp_ctrl, or the 24-bit DPP8 selector
  uint8_t row_mask = 0xf, bank_mask = 0xf;
  bool bound_ctrl = false;  // true: out-of-range reads give 0
  bool fi = false;          // fetch from inactive lanes
};

struct Sdwa {
  bool present = false;
  uint8_t dst_sel = 6;     // as Operand::sdwa_sel
  uint8_t dst_unused = 0;  // 0 PAD, 1 SEXT, 2 PRESERVE
};

// A decoded instruction. `name` is canonical: LLVM's opcode name without
// generation and encoding suffixes ("V_ADD_CO_U32", "GLOBAL_LOAD_DWORDX2",
// "DS_ADD_U32"); renames of later generations are mapped to one spelling
// (GLOBAL_LOAD_B64 -> GLOBAL_LOAD_DWORDX2, V_ADD_NC_U32 -> V_ADD_U32, ...).
struct Inst {
  std::string_view name;
  Handler handler = nullptr;  // never null: unknown ones fault by name
  uint64_t pc = 0;
  uint8_t size = 4;  // bytes
  uint16_t op = 0;   // handler-private selector
  uint8_t num_src = 0;
  Operand dst;                 // vdst / sdst / vdata of loads
  Operand sdst;                // second destination (carry-out, VOP3B; VOPC's mask is dst)
  std::array<Operand, 4> src;  // in assembly order; VOP2 carry-in is src[2]
  bool clamp = false;
  uint8_t omod = 0;         // 0 none, 1 *2, 2 *4, 3 /2
  bool op_sel_dst = false;  // VOP3 op_sel bit 3: write the high half
  Dpp dpp;
  Sdwa sdwa;
  // MFMA
  uint8_t cbsz = 0, abid = 0, blgp = 0;
  uint8_t truth = 0;  // V_BITOP*: the result for each combination of source bits
  // Memory forms. addr/data/saddr/rsrc/soffset are Operands; kNone when absent.
  Operand addr, data, data2, saddr, rsrc, soffset;
  int64_t offset = 0;   // instruction offset (DS: offset0 of two-offset forms)
  int64_t offset1 = 0;  // DS two-offset forms: second offset
  bool glc = false;     // atomics: return pre-op value (sc0/TH_ATOMIC_RETURN on later ones)
  bool offen = false, idxen = false, lds = false, gds = false, tfe = false;
  bool scale_offset = false;  // gfx1250: the register offset counts elements
  int64_t simm = 0;           // SOPP/SOPK immediate, or absolute branch target in `target`
  uint64_t target = 0;        // PC-relative branches: absolute address
  uint32_t raw[2] = {0, 0};   // the first two encoded dwords (the second may be 0)
  std::shared_ptr<const DualPair> dual;  // VOPD: the two halves; name is "VOPD"
  std::string text;                      // disassembly
};

// The two halves of a dual-issue instruction, each bound to its own handler.
struct DualPair {
  Inst x, y;
};

// Why a wave stopped. The queue reports these as hardware would.
struct Fault {
  enum class Kind : uint8_t { kNone, kIllegalInstruction, kMemory, kTrap };
  Kind kind = Kind::kNone;
  uint64_t pc = 0;
  uint64_t address = 0;  // kMemory
  bool write = false;
  std::string what;  // "unimplemented: v_foo_b32 v1, v2 (gfx90a)"
};

// What the wave may touch. Addresses are host addresses (the soft GPU maps
// memory one to one); the implementation knows which ranges are mapped.
class Memory {
 public:
  virtual ~Memory() = default;
  // True if [address, address+size) may be accessed. Must be cheap.
  virtual bool Check(uint64_t address, uint64_t size, bool write) = 0;
};

struct Workgroup {
  std::vector<uint8_t> lds;
  uint32_t id[3] = {0, 0, 0};
  uint32_t waves_at_barrier = 0, waves_alive = 0;
  uint32_t barriers_passed = 0;  // completed barriers
  uint64_t gds_unused = 0;

  // One more wave has reached the barrier, or a wave has ended.
  void SignalBarrier() {
    ++waves_at_barrier;
    CompleteBarrier();
  }
  void CompleteBarrier() {
    if (waves_at_barrier == 0 || waves_at_barrier < waves_alive) return;
    waves_at_barrier = 0;
    ++barriers_passed;
  }
};

// Receives s_sendmsg of interrupt messages (host-call doorbells).
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual void OnMessage(uint32_t message, uint32_t m0) = 0;
};

struct Wave {
  const Target* target = nullptr;
  Memory* memory = nullptr;
  Workgroup* group = nullptr;
  uint32_t lanes = 64;  // wavefront size
  std::array<uint32_t, kNumSRegs> sgpr{};
  bool scc = false;
  uint32_t mode = 0;  // MODE hwreg: [3:0] round, [7:4] denorm, 8 dx10_clamp, 9 ieee
  uint64_t pc = 0;
  uint32_t num_sgprs = 0;  // allocated; an access beyond is a fault
  uint32_t num_vgprs = 0, num_agprs = 0;
  std::vector<uint32_t> vgpr;  // [reg * lanes + lane], arch VGPRs
  std::vector<uint32_t> agpr;  // likewise
  // Apertures and scratch. A lane's private byte b lives at
  // scratch_base + swizzle(lane, b); see memory.cpp.
  uint64_t scratch_base = 0;                           // this wave's backing, host address
  uint32_t scratch_per_lane = 0;                       // bytes
  uint64_t shared_aperture = 0, private_aperture = 0;  // 64-bit bases
  uint32_t wave_in_group = 0;
  uint32_t hw_id = 0;
  uint64_t memtime = 0;             // instructions issued so far by the machine
  uint32_t barriers_signaled = 0;   // this wave's arrivals
  MessageSink* messages = nullptr;  // may be null
  Fault fault;

  uint64_t Exec() const { return sgpr[kExecLo] | (uint64_t{sgpr[kExecHi]} << 32); }
  void SetExec(uint64_t v) {
    sgpr[kExecLo] = static_cast<uint32_t>(v);
    sgpr[kExecHi] = lanes == 64 ? static_cast<uint32_t>(v >> 32) : 0;
  }
  uint64_t Vcc() const { return sgpr[kVccLo] | (uint64_t{sgpr[kVccHi]} << 32); }
  uint32_t* V(uint32_t reg) { return vgpr.data() + size_t{reg} * lanes; }
  uint32_t* A(uint32_t reg) { return agpr.data() + size_t{reg} * lanes; }

  Step FaultIllegal(const Inst& inst, std::string why);
  Step FaultMemory(const Inst& inst, uint64_t address, bool write);

  // Scalar operand access with the specials (null, vccz, apertures) handled.
  uint32_t ReadS(uint16_t reg) const { return reg < kNull ? sgpr[reg] : ReadSpecial(reg); }
  void WriteS(uint16_t reg, uint32_t value) {
    if (reg < kNull) {
      sgpr[reg] = value;
    } else {
      WriteSpecial(reg, value);
    }
  }
  uint64_t ReadS64(uint16_t reg) const {
    if (reg >= kNull) return ReadSpecial64(reg);
    return sgpr[reg] | (uint64_t{sgpr[reg + 1]} << 32);
  }
  void WriteS64(uint16_t reg, uint64_t v) {
    WriteS(reg, static_cast<uint32_t>(v));
    if (reg != kNull) WriteS(reg + 1, static_cast<uint32_t>(v >> 32));
  }
  uint32_t ReadSpecial(uint16_t reg) const;
  uint64_t ReadSpecial64(uint16_t reg) const;
  void WriteSpecial(uint16_t reg, uint32_t value);
  // A lane mask is 64 bits in wave64, one register in wave32.
  uint64_t ReadMask(uint16_t reg) const { return lanes == 64 ? ReadS64(reg) : ReadS(reg); }
  void WriteMask(uint16_t reg, uint64_t v) {
    if (lanes == 64)
      WriteS64(reg, v);
    else
      WriteS(reg, static_cast<uint32_t>(v));
  }
};

// Each part returns the handler for a canonical name and sets inst.op and
// whatever else it precomputes, or nullptr if the name is not its own.
Handler FindScalarHandler(Inst& inst, const Target& target);
Handler FindMemoryHandler(Inst& inst, const Target& target);
Handler FindVectorHandler(Inst& inst, const Target& target);

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_WAVE_H_
