"""The engine, broken on purpose: one rule each.

A break replaces a text that occurs once in a file by another one. `tests` are the
programs, with a filter, of which one has to fail; the first is the one meant to.
"""
from typing import NamedTuple

SEQUENCE = "patch/rewrite/probe_sequence.cpp"
CHOICE = "patch/rewrite/register_choice.cpp"
RECORD = "patch/rewrite/record_sequence.cpp"
REWRITER = "patch/rewrite/trampoline_rewriter.cpp"
CLONE = "patch/rewrite/clone.cpp"
PLACEMENT = "patch/rewrite/placement.cpp"
LIVENESS = "patch/analysis/liveness.cpp"
MASKS = "patch/analysis/exec_masks.cpp"
PENDING = "patch/analysis/pending.cpp"
WAITS = "patch/analysis/wait_counters.cpp"
KERNEL = "patch/analysis/kernel_analysis.cpp"
OBSTACLE = "patch/analysis/clone_obstacle.cpp"
ALLOCATION = "patch/analysis/allocation.cpp"
DEAD = "contract/dead.cpp"
LANES = "contract/lanes.cpp"
PROOF_CODE = "contract/kernel_code.cpp"
PROOF_FACTS = "contract/code_facts.cpp"
GFX12 = "patch/isa/generations/gfx12.cpp"
GFX9 = "patch/isa/generations/gfx9.cpp"
TRAITS = "patch/isa/instruction_traits.cpp"

ADMISSION = ("contract_admission_test", "*EachProcessor.EveryProbe*:Admission.Growth*")
VALIDATION = ("contract_admission_test", "*Validat*:Clone*:SplitClause*:*/SplitClause*:Seams*")
LIVE = ("analysis_test", "Liveness*")
PROVEN = ("contract_dead_test", "*")
FLIGHT = ("analysis_test", "Pending*:Position*")
MOVABLE = ("analysis_test", "Immovable*")
REGISTERS = ("rewrite_test", "Registers*")
GOLDEN = ("rewrite_test", "Golden*")
CLONES = ("rewrite_test", "Clone*:NoClone*")
PLACES = ("rewrite_test", "Placement*:BranchOffset*")
TABLES = ("isa_hazards_test", "*")
RECORDS = ("contract_records_test", "*gfx90a*CLONE")
RECORD_GOLDEN = ("rewrite_test", "RecordGolden*")
BESIDE = ("contract_beside_softgpu_test", "*gfx90a*")


class Break(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: tuple


BREAKS = (
    # ---- registers that are preserved
    Break("EXEC is not restored", SEQUENCE,
          'Line(absl::StrCat(Move(), Exec(), ", ", ExecSave()));', "", (ADMISSION, GOLDEN)),
    Break("EXEC is saved in one register of two", CHOICE,
          "TakeScalar(wave64_ ? 2 : 1, strategy.grow_sgprs)", "TakeScalar(1, strategy.grow_sgprs)",
          (REGISTERS, ADMISSION)),
    Break("scalars are taken while live", CHOICE,
          "const RegisterSet& avoided = fresh ? kernel_.mentioned() : busy_;\n"
          "    return !busy_.HasAny(first, count) && ",
          "const RegisterSet& avoided = fresh ? kernel_.mentioned() : choice_.temporaries;\n"
          "    return ", (REGISTERS, ADMISSION)),
    Break("VCC is taken while live", CHOICE,
          "ScalarFree(kVccLo, count, false)", "true", (REGISTERS, ADMISSION)),
    Break("vectors are taken while live", CHOICE,
          "return !busy_.HasAny(first, count) && !avoided.HasAny(first, count) &&\n"
          "           !choice_.temporaries.HasAny(first, count);\n  }\n\n"
          "  std::optional<uint16_t> FindVectors",
          "return (&avoided == &busy_ || !avoided.HasAny(first, count)) &&\n"
          "           !choice_.temporaries.HasAny(first, count);\n  }\n\n"
          "  std::optional<uint16_t> FindVectors", (REGISTERS, ADMISSION)),
    Break("registers of loads in flight are taken", CHOICE,
          "kernel.LiveAt(instruction, request.position) |\n"
          "              kernel.PendingAt(instruction, request.position)",
          "kernel.LiveAt(instruction, request.position)", (REGISTERS, ADMISSION)),
    Break("gfx12: scalars that the kernel uses are borrowed", CHOICE,
          "return generation_.sgpr_reads_remembered || generation_.fresh_registers_only;",
          "return false;", (REGISTERS,)),
    Break("gfx90a: a pair starts at an odd register", CHOICE,
          "return generation_.vgpr64_alignment ? 2 : 1;", "return 1;", (REGISTERS, ADMISSION)),
    # ---- what is live, what is in flight
    Break("reads keep nothing alive", LIVENESS,
          "state.live |= in.uses;", "", (LIVE,)),
    Break("unknown code reads nothing", LIVENESS,
          "if (flow_.exits[block] == Exit::kUnknown) out = {everything_, everything_ & vectors_};",
          "", (LIVE,)),
    Break("callees read nothing", LIVENESS,
          "state = {everything_, everything_ & vectors_};", "state = {};", (LIVE,)),
    Break("activated lanes are forgotten", LIVENESS,
          "if (activates) state.elsewhere = state.live & vectors_;", "", (LIVE,)),
    Break("a write of some lanes ends all lanes' lives", LIVENESS,
          "if (in.writes_whole && all_lanes_[i]) {", "if (in.writes_whole) {", (LIVE,)),
    Break("lanes that other lanes read are forgotten", LIVENESS,
          "if (!in.lanewise) state.elsewhere |= read;", "", (LIVE,)),
    Break("EXEC may hold lanes beyond the entry's", MASKS,
          "if (!exec.within || IgnoresExec(instructions_.Shared(i)))",
          "if (IgnoresExec(instructions_.Shared(i)))", (LIVE,)),
    Break("v_writelane is forgotten", MASKS,
          'in.mfma || in.opcode.starts_with("v_writelane") ||', "in.mfma ||", (LIVE,)),
    Break("any logic of EXEC narrows it", MASKS,
          "if (o.size() != 3 || !IsExec(o[0])) return true;", "return false;", (LIVE,)),
    Break("DPP is taken for a lane's own business", TRAITS,
          "return (flags & flag::kDpp) != 0 ||", "return flags == 0 ||", (LIVE,)),
    Break("SDWA is taken to write whole registers", TRAITS,
          "if (!base.lanewise || (flags & flag::kSdwa) != 0) return;",
          "if (!base.lanewise) return;", (LIVE,)),
    Break("half a register is taken for all of it", TRAITS,
          '         !AnyOf(m, {"cvt_f16",', '         !AnyOf(m, {"cvt_f32",', (LIVE,)),
    Break("loads are not in flight", PENDING,
          "if (counting.raised & (1u << c)) state[c] |= results;", "(void)results;", (FLIGHT,)),
    Break("any wait lands any load", PENDING,
          "if (counting.cleared & (1u << c)) state[c] = RegisterSet();",
          "state[c] = RegisterSet();", (FLIGHT,)),
    Break("a wait for some is taken for a wait for all", WAITS,
          "if (LeavesOutstanding(field, word) == 0) cleared", "cleared", (FLIGHT,)),
    Break("matrix results are not in flight", PENDING,
          "state[kMatrix] |= in.defs | in.partial_defs;", "", (FLIGHT,)),
    Break("operands of an access just issued are free", KERNEL,
          "if (position == Position::kAfter) pending |= ReadLate(instructions_[i]);",
          "if (position == Position::kAfter) ReadLate(instructions_[i]);",
          (FLIGHT,)),
    # ---- what the proof finds live by itself
    Break("the proof overlooks reads", DEAD,
          "active = (active & ~step.ends) | reads_active;", "active = active & ~step.ends;",
          (PROVEN,)),
    Break("the proof overlooks that lanes come back", DEAD,
          "if (step.widens) idle = either;", "", (PROVEN,)),
    Break("the proof overlooks that lanes go", DEAD,
          "      active = either;\n", "", (PROVEN,)),
    Break("the proof overlooks reads across lanes", DEAD,
          "step.across = in.lanewise ? 0 : step.reads & vectors_;", "step.across = 0;", (PROVEN,)),
    Break("the proof takes a write in some lanes for one in all", DEAD,
          "idle = (idle & ~(step.ends & scalars_)) | reads_idle;",
          "idle = (idle & ~step.ends) | reads_idle;", (PROVEN,)),
    Break("the proof takes callees for harmless", DEAD,
          "step.calls = fact.goes == Goes::kCalls;", "step.calls = false;", (PROVEN,)),
    Break("the proof overlooks where branches lead", PROOF_CODE,
          "    block.next[ways++] = BlockOf(*to);\n", "    BlockOf(*to);\n", (PROVEN,)),
    Break("the proof overlooks lanes beyond the entry's", LANES,
          "if (!state.other.Get(patch::kExecLo).zero) return std::vector<bool>(n, false);\n"
          "      for", "for", (PROVEN,)),
    Break("the proof takes any logic for one that narrows", PROOF_FACTS,
          "fact.widens = !narrows;", "fact.widens = false;", (PROVEN,)),
    # ---- hazards and waits
    Break("gfx9: what distance lacks is not made up", SEQUENCE,
          "    out_.KeepApart();\n", "", (REGISTERS, VALIDATION)),
    Break("gfx9: vector memory may read a scalar at once", GFX9,
          "constexpr HazardRule kMi200[] = {\n"
          "    {P::kValuWritesScalar, C::kMemoryReadsScalar, 5},",
          "constexpr HazardRule kMi200[] = {", (TABLES,)),
    Break("gfx90a: dot products' results may be used at once", GFX9,
          "{P::kDotWritesVector, C::kTouchesVector, 3},\n"
          "    {P::kStoresWideData, C::kValuWritesVector, 1},",
          "{P::kStoresWideData, C::kValuWritesVector, 1},", (TABLES, REGISTERS)),
    Break("gfx942: one wait state too few behind wide stores", GFX9,
          "{P::kStoresWideData, C::kValuWritesVector, 2},",
          "{P::kStoresWideData, C::kValuWritesVector, 1},", (TABLES,)),
    Break("no fence ahead", SEQUENCE, "    out_.Lines(HeadGuard());\n", "", (VALIDATION, GOLDEN)),
    Break("no fence behind", SEQUENCE,
          "    out_.Lines(generation_.tail_guard);\n", "", (VALIDATION, GOLDEN)),
    Break("matrix results are not waited for", SEQUENCE,
          "return matrix ? generation_.mfma_head_guard : generation_.head_guard;",
          "return generation_.head_guard;", (REGISTERS,)),
    Break("gfx12: no fence between scalar writes and vector reads", SEQUENCE,
          "    if (generation_.sgpr_reads_remembered) out_.Lines(generation_.head_guard);\n", "",
          (VALIDATION, GOLDEN)),
    Break("gfx10.1: no fence between an access and EXEC's restore", SEQUENCE,
          "    out_.Lines(generation_.memory_guard);\n", "",
          (VALIDATION, GOLDEN)),
    Break("gfx10.1: LDS and branches unordered", REWRITER,
          "return generation.family == kLdsBranchFamily && in.memory != MemoryKind::kNone &&",
          "return generation.major < 0 && in.memory != MemoryKind::kNone &&", (GOLDEN,)),
    Break("VGPRs are given back right behind a sequence", CLONE,
          "InsertedAhead(i) && DeallocatesVgprs(", "false && DeallocatesVgprs(", (CLONES,
                                                                                 VALIDATION)),
    Break("the offset that gfx10.1 gets wrong", CLONE,
          "if (!encoding_.offset_3f_is_broken) return false;", "return false;", (VALIDATION,)),
    # ---- clauses, hints, addresses
    Break("a clause stays whole around a probe", CLONE,
          "if (in.is_clause) SplitClause(i);", "", (CLONES, VALIDATION)),
    Break("a clause's second part is none", CLONE,
          "pieces_[first].clause_ahead = covered;", "", (CLONES, VALIDATION)),
    Break("a delay hint is kept across a probe", CLONE,
          'if (in.opcode == "s_delay_alu") KeepDelay(i);', "", (CLONES, VALIDATION)),
    Break("a branch jumps over the probes at its target", CLONE,
          "return clone_.starts[*kernel_.InstructionAt(",
          "return clone_.places[*kernel_.InstructionAt(", (CLONES, VALIDATION)),
    Break("an address from the program counter is not corrected", CLONE,
          "for (const PcAddress& address : kernel_.PcAddresses()) Address(address);", "",
          (CLONES, VALIDATION)),
    Break("beside the original an address is one in the copy", CLONE,
          "encoding_.zero_pair | (WordOf(address.getpc) & kSop1Destination)",
          "WordOf(address.getpc)", (VALIDATION, BESIDE)),
    Break("beside the original an address lacks its high word", CLONE,
          "clone_.fixups.push_back({high, true, target, FixupBase::kOriginal});", "",
          (VALIDATION, BESIDE)),
    Break("beside the original an address is a word off", CLONE,
          "clone_.fixups.push_back({low, false, target, FixupBase::kOriginal});",
          "clone_.fixups.push_back({low, false, target + 4, FixupBase::kOriginal});",
          (VALIDATION, BESIDE)),
    Break("what an address carries is read in a clone", OBSTACLE,
          "if (address->low != address->high && SccIsReadBehind(address->high)) {", "if (false) {",
          (CLONES, VALIDATION)),
    Break("a trampoline's way back is one word off", PLACEMENT,
          "if (!site.branch) return {behind};", "if (!site.branch) return {behind + 4};",
          (GOLDEN, PLACES)),
    Break("a displaced branch loses its condition", REWRITER,
          "displaced.conditional ? word & ~uint32_t{0xffff} : 0", "uint32_t{0}", (GOLDEN,)),
    Break("a displaced s_clause covers the branch back", REWRITER,
          "if (displaced.is_clause) return Append(kernel, kBrokenClause, site);", "", (GOLDEN,)),
    Break("the older firmware's entry counts", KERNEL,
          "if (in.offset >= preload_entry_) return std::nullopt;", "return std::nullopt;",
          (MOVABLE,)),
    Break("a kernel is cloned whose second entry is no instruction", OBSTACLE,
          "if (preload_entry != 0 && !instructions_.Find(preload_entry)) {", "if (false) {",
          (CLONES, VALIDATION)),
    Break("relative register numbers are taken as they stand", KERNEL,
          "if (RegionAt(i, position) & kInGprIndex) {", "if (false) {", (MOVABLE,)),
    Break("probes run when the vector registers are given back", KERNEL,
          "if (RegionAt(i, position) & kAfterDealloc) {", "if (false) {", (MOVABLE,)),
    # ---- allocation and counters
    Break("grown SGPRs are not in the descriptor", REWRITER,
          "rsrc1 = (rsrc1 & ~(0xfu << 6)) | ((2 * (sgprs / generation.sgpr_granule - 1)) << 6);",
          "", (REGISTERS, ADMISSION)),
    Break("grown VGPRs are a granule short", REWRITER,
          "(vgprs / now.vgpr_granule - 1)", "(vgprs / now.vgpr_granule - 2)",
          (REGISTERS, ADMISSION)),
    Break("AGPRs start where they started", REWRITER,
          "rsrc3 = (rsrc3 & ~0x3fu) | (RoundUp(needs.vgprs, 4) / 4 - 1);", "", (REGISTERS,)),
    Break("AGPRs in use are forgotten", CHOICE, "  if (used == 0) return 0;\n", "  return 0;\n",
          (REGISTERS,)),
    Break("VCC's own registers are taken for ordinary ones", ALLOCATION,
          "a.sgprs - generation.sgpr_tail", "a.sgprs", (REGISTERS,)),
    Break("a counter is another site's", SEQUENCE,
          "uint64_t{counter_index} * kCounterBytes", "uint64_t{counter_index} * 4",
          (ADMISSION, GOLDEN)),
    Break("an address's halves are exchanged", "patch/rewrite/sequence_writer.cpp",
          "sequence_.fixups.push_back({at, high_half, addend});",
          "sequence_.fixups.push_back({at, !high_half, addend});", (GOLDEN, ADMISSION)),
    Break("gfx12: the host does not see the counts", GFX12,
          'g.system_scope = " scope:SCOPE_SYS";', "", (GOLDEN,)),
    Break("gfx942: the host does not see the counts", GFX9,
          'g.system_scope = " sc1";', "", (GOLDEN,)),
    # ---- records
    Break("a record's EXEC is not restored", RECORD,
          'void RestoreExec() { out_.Line(absl::StrCat(Move(), Exec(), ", ", Saved())); }',
          "void RestoreExec() {}", (RECORDS, RECORD_GOLDEN)),
    Break("a record's place is not waited for", RECORD,
          "out_.Line(std::string(generation_.load_wait));", "", (RECORDS, RECORD_GOLDEN)),
    Break("a record is complete before it is", RECORD,
          "out_.Line(std::string(generation_.store_wait));", "", (RECORD_GOLDEN,)),
    Break("a record's place is masked too wide", RECORD,
          "2 * half - RJDBI_RECORD_ALIGNMENT", "4 * half - RJDBI_RECORD_ALIGNMENT",
          (RECORDS, RECORD_GOLDEN)),
    Break("a record is written beyond its half", RECORD,
          "request_.ring_half_bytes - content_.layout.bytes + RJDBI_RING_HALF_BIT",
          "request_.ring_half_bytes + RJDBI_RING_HALF_BIT", (RECORDS, RECORD_GOLDEN)),
    Break("lost records are not counted", RECORD,
          'absl::StrCat("v_mov_b32_e32 ", DataLow(), ", 1")',
          'absl::StrCat("v_mov_b32_e32 ", DataLow(), ", 0")', (RECORDS, RECORD_GOLDEN)),
    Break("lanes write where other lanes do", RECORD,
          'words == 2 ? 3 : 2', "2", (RECORDS, RECORD_GOLDEN)),
    Break("gfx10.1: EXEC is overwritten before a record's store has read it", RECORD,
          "void MemoryGuard() { out_.Lines(generation_.memory_guard); }", "void MemoryGuard() {}",
          (RECORD_GOLDEN,)),
)
