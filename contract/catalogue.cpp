// The table behind catalogue.h. Keep rows ordered by id; append, never renumber.
#include "contract/catalogue.h"

#include <algorithm>
#include <utility>

namespace rjdbi::contract {
namespace {

using patch::BodyRule;
using patch::Reason;

constexpr CatalogueEntry kCatalogue[] = {
    {"RJD-A001", "the site selector does not parse",
     "A selector combines opcode globs (ds_*), families (memory, valu), places (entry, exit, "
     "block, "
     "kernel+0x40, function:GLOB, FILE:LINE) with and, or, not, every:N and parentheses. Nothing "
     "is "
     "attached on a guess of what was meant.",
     "Correct the selector at the column that the message names."},
    {"RJD-A002", "no such probe",
     "Probes are built in, each with a manifest that states its effects. A name that is not in "
     "the list has no manifest, so nothing could be said about what it does.",
     "Use one of the probes that the message lists."},
    {"RJD-A003", "sabotage is not allowed by the daemon's policy",
     "The sabotage probe ends wavefronts on purpose, to prove that patched bytes run. It needs "
     "two independent consents; the daemon's configuration has to give the first.",
     "Enable sabotage in the daemon's configuration on a machine where results do not matter."},
    {"RJD-A004", "sabotage was not confirmed by the attachment",
     "The sabotage probe ends wavefronts on purpose. Besides the daemon's policy, the attachment "
     "itself must say that wrong results are wanted.",
     "Repeat the request with --allow-sabotage (in a specification, allow-sabotage=true) if "
     "wrong results are intended."},
    {"RJD-A005", "a requested budget exceeds the daemon's ceiling",
     "The operator of the machine sets ceilings that no attachment may exceed. A request above "
     "one is refused whole instead of being lowered silently.",
     "Ask for no more than the limit, or have the ceiling raised in the daemon's configuration."},
    {"RJD-A006", "the attachment is malformed",
     "A required field is missing, or a field is longer than any real name or pattern.",
     "Correct the field that the message names."},
    {"RJD-A007", "the kernel pattern matches no kernel of this code object",
     "The pattern was compared with the mangled and the demangled name of each kernel. This is "
     "no error: another code object of the same process may hold the kernel.",
     "List the kernels of the object and compare their names with the pattern."},
    {"RJD-A008", "nothing was asked of this kernel",
     "No attachment matches the kernel, or none selects the instruction, so there was nothing to "
     "decide.",
     "Attach a probe to the kernel, with a selector that covers the instruction."},
    {"RJD-A009", "too many attachments want this code object",
     "Every attachment is judged at every site that it selects, so work and memory grow with "
     "their number. Those that were made first are admitted, up to the limit; the others are not "
     "judged.",
     "Detach some, name kernels more closely, or raise limits.max_attachments_per_object."},

    {"RJD-B001", "the probe needs more SGPRs than the budget allows",
     "Where no scalar register is free the kernel's allocation has to grow. On generations that "
     "allocate scalar registers this can reduce the number of resident wavefronts, so growth is "
     "limited before anything is attached.",
     "Raise --max-sgpr-delta, or choose a site with more free scalar registers.",
     Reason::kSgprBudget},
    {"RJD-B002", "the probe needs more VGPRs than the budget allows",
     "Where no vector register is free the kernel's allocation has to grow, in whole granules. "
     "One granule can cost a resident wavefront per SIMD, which changes the very performance "
     "under observation.",
     "Raise --max-vgpr-delta, or choose a site with more free vector registers.",
     Reason::kVgprBudget},
    {"RJD-B003", "the probe executes more instructions per event than the budget allows",
     "Every executed event pays for the jump to the probe, its guards, saves, payload and "
     "restores, and the way back. The limit bounds how much issue time one event may cost. Probes "
     "of several attachments at one site share it, in the order of the attachments.",
     "Raise --max-injected-instructions, use a cheaper probe, or detach one of those that share "
     "the site."},
    {"RJD-B004", "the estimated telemetry traffic exceeds the budget",
     "Traffic is estimated as bytes per event times expected events per second of one site, "
     "added up over the sites of the attachment in address order. Sites that no longer fit are "
     "refused; those before them stay. Unless the attachment says how many events it expects, "
     "the rate is an assumption: that of wavefronts that start, times a factor for each loop "
     "around the site.",
     "Select fewer sites, state a realistic --expected-events-per-second, allow a reduction "
     "(--reduce block-count,rotate), or raise --max-telemetry-bytes-per-second."},
    {"RJD-B005", "the patched object would grow beyond the budget",
     "Trampolines are appended to the image, and the loader keeps the image both on the device "
     "and in host memory. Sites are given up from the highest address downwards until the rest "
     "fits.",
     "Select fewer sites, allow a reduction (--reduce block-count,rotate), or raise "
     "--max-code-growth-bytes."},
    {"RJD-B006", "fewer wavefronts would fit on a SIMD than the budget allows",
     "Registers that a kernel does not allocate yet can cost resident wavefronts, which hide "
     "memory latency; the kernel then runs slower for a reason that is not its own. A limit on "
     "the loss keeps the growth within the allocation's present occupancy step.",
     "Raise --max-occupancy-loss, or use --probe block-count or fewer sites, which need fewer "
     "registers."},
    {"RJD-B007", "the kernel's accumulation registers would grow beyond the budget",
     "Where AGPRs share a file with the other vector registers, an allocation that grows can "
     "hold more of them. Compared are the kernel's descriptors before and after.",
     "Raise --max-agpr-delta, or choose sites with more free vector registers."},
    {"RJD-B008", "the kernel's scratch memory would grow beyond the budget",
     "Scratch is allocated for every work-item that can be resident. Compared are the kernel's "
     "descriptors before and after; probes of this engine take none.",
     "Raise --max-local-memory-delta."},
    {"RJD-B009", "the kernel's LDS would grow beyond the budget",
     "LDS that a workgroup allocates limits how many workgroups are resident. Compared are the "
     "kernel's descriptors before and after; probes of this engine take none.",
     "Raise --max-shared-memory-delta."},
    {"RJD-B010", "the probe looks at more of a site's events than the budget allows",
     "Probes look at every event of their site; there is no probe yet that samples. A limit below "
     "a million events of a million therefore refuses every probe that counts or records.",
     "Leave --max-sampled-event-fraction out, or select fewer sites."},
    {"RJD-B011", "judging the code object takes longer than the budget allows",
     "The process that loads the object waits for the answer. The time is looked at between "
     "kernels and before the image is made; what has not been reached by then is refused, and "
     "since the same question can have another answer next time, this one is not kept.",
     "Raise --max-admission-time-ms, or name kernels and sites more closely."},
    {"RJD-B012", "it is not this site's turn",
     "The attachment asks for more sites than fit into its budget and allows that they take "
     "turns (--reduce rotate). Sites are divided, in address order, into windows that fit; one "
     "window is attached at a time, the others are left out.",
     "Attach again with the --rotation that the message names."},

    {"RJD-D001", "the probe waits for memory operations in flight",
     "Either the only registers to be had are targets of loads in flight, or the generation "
     "requires a wait around memory instructions that move behind a branch. Results are "
     "unaffected; the overlap of memory and computation at this site is reduced.",
     "Allow growth of the register allocation if timing matters at this site."},
    {"RJD-D002", "fewer wavefronts fit on a SIMD than before",
     "The kernel's register allocation grew across a step of the occupancy table. Results are "
     "unaffected; latency hiding and scheduling are not those of the original kernel.",
     "Set --max-occupancy-loss 0 to refuse such sites, or read timing with this in mind."},
    {"RJD-D003", "the probe splits a clause",
     "The compiler grouped memory instructions that should issue back to back. The site lies in "
     "such a group, so its s_clause, a scheduling hint, is replaced by s_nop: on every execution, "
     "other wavefronts' memory instructions may come between those of the group. Results are "
     "unaffected; memory locality and timing are not those of the original kernel.",
     "Choose the first instruction after the clause if timing matters here."},
    {"RJD-D004", "the records do not name the workgroup",
     "The id of a wavefront's workgroup is in registers only when the kernel starts, and the "
     "kernel may use these for something else before the site. A clone keeps a copy where scalar "
     "registers can be had for it. Here the records name the wavefront's slot on the GPU alone.",
     "Let the kernel be cloned (--placement auto), or raise --max-sgpr-delta.",
     Reason::kWorkgroupIdLost},

    {"RJD-D005", "the probe writes memory that is not proven to be its own",
     "A user's probe stores through an address that the engine cannot follow, and its manifest "
     "grants that (memory: APPLICATION_MEMORY_WRITE). Registers, control flow and everything "
     "else are proven as for any probe; what the stores do to the application is the word of "
     "the probe's author.",
     "Store to the telemetry block at a constant or masked offset, and leave the grant out."},

    {"RJD-D006", "the probe exceeds a limit of an attachment that only warns",
     "The attachment's mode is warn: its own limits and the daemon's defaults are reported, and "
     "the probe is attached all the same. The daemon's ceilings, and everything that is not a "
     "budget, hold as ever.",
     "Use --mode enforce to refuse such sites, or raise the limit that the message names."},

    {"RJD-E001", "the probe changes application state",
     "A register or mode that the application still needs does not hold its original value when "
     "the probe ends. The program would compute something else, unobserved.",
     "Declare the change in the manifest if it is intended; otherwise save and restore it."},
    {"RJD-E002", "the probe touches memory that its manifest does not declare",
     "The address could not be proven to lie in a declared region. An address of unknown origin "
     "counts as application memory.",
     "Use only the probe's own counter, or declare the region in the manifest."},
    {"RJD-E003", "the probe transfers control in an undeclared way",
     "A probe that is declared to fall through must reach its last instruction and go on there. "
     "Calls need the link register pair, and an end of program discards the wavefront.",
     "Remove the transfer, or declare it in the manifest."},
    {"RJD-E004", "the probe synchronises in an undeclared way",
     "Atomics order memory and barriers order wavefronts. A barrier in particular deadlocks when "
     "some wavefronts of the workgroup never reach the site.",
     "Remove the operation, or declare it in the manifest."},
    {"RJD-E005", "the probe acts in lanes that its manifest does not declare",
     "Lanes that the application has switched off hold values that nobody promised anything "
     "about, and a wider mask multiplies memory traffic.",
     "Keep to the declared mask, or declare the wider one."},
    {"RJD-E006", "the probe is longer than its manifest declares",
     "The number of instructions per event is part of the promise on which budgets are decided.",
     "Shorten the sequence, or raise max_instructions_per_event in the manifest."},
    {"RJD-E007", "the probe moves more telemetry than its manifest declares",
     "Bytes per event are part of the promise on which telemetry budgets are decided.",
     "Write less, or raise max_telemetry_bytes_per_event in the manifest."},
    {"RJD-E008", "the probe uses more temporary registers than its manifest declares",
     "Temporary registers drive the growth of the kernel's allocation, so their number is part "
     "of the promise.",
     "Use fewer registers, or raise the limit in the manifest."},
    {"RJD-E009", "the probe reads application state that its manifest does not declare",
     "What a probe can observe is part of what it promises: a counter has no business with the "
     "application's data.",
     "Remove the read, or declare it in the manifest."},
    {"RJD-E010", "an effect of the probe cannot be proven",
     "The sequence contains something whose effect the engine does not know, such as a backward "
     "branch, indirect register addressing or an instruction outside its tables. Unknown counts "
     "as the worst case.",
     "Rewrite the probe with instructions whose effects are known."},
    {"RJD-E011", "the probe contains an instruction that no probe may use",
     "Traps, messages to the host, halts and changes of priority or of the trap handler's state "
     "act outside the wavefront. No manifest can declare them.",
     "Remove the instruction."},
    {"RJD-E012", "a fixup does not lie in an address literal",
     "The agent writes half of the counter's address into each fixup word. In any place but the "
     "literal of a move it would change the code that was judged.",
     "Report this as a bug of rjdbi."},
    {"RJD-E013", "the probe touches a register with a load in flight",
     "A load that was issued earlier may still deliver its result into the register. Writing the "
     "register, or saving and restoring it, would race with the load.",
     "Use another register, or wait for the load first."},
    {"RJD-E014", "a register that the probe uses is not proven to be free",
     "The engine chose registers that by its analysis nothing reads any more. The proof looks "
     "for readers on its own, in the kernel's code, and found one, or cannot exclude one.",
     "Report this as a bug of rjdbi: its two analyses disagree. Other sites of the kernel are "
     "not affected."},

    {"RJD-G001", "the daemon could not be reached",
     "The process loaded the code object while no daemon answered on the socket. The original "
     "was loaded and nothing in it was observed.",
     "Start the daemon before the process, and check the socket's path and permissions.",
     Reason::kNone, v1::GAP_DAEMON_UNREACHABLE},
    {"RJD-G002", "the daemon did not answer in time",
     "Admission took longer than the agent's deadline. The original was loaded, so the process "
     "was delayed by no more than that.",
     "Load the object again (decisions are cached by then), or raise the deadline.", Reason::kNone,
     v1::GAP_DEADLINE_EXCEEDED},
    {"RJD-G003", "the daemon's answer could not be understood",
     "The reply violated the protocol, or the received image did not have the announced size or "
     "hash. The original was loaded.",
     "Use an agent and a daemon of the same version, and look at the daemon's log.", Reason::kNone,
     v1::GAP_PROTOCOL_ERROR},
    {"RJD-G004", "the code object is larger than the agent sends",
     "Objects above the daemon's limit are not uploaded. The original was loaded.",
     "Raise the daemon's object size limit if the object is genuine.", Reason::kNone,
     v1::GAP_OBJECT_TOO_LARGE},
    {"RJD-G005", "the process ran out of memory",
     "The agent could not get memory for the patched image or its records. The original was "
     "loaded.",
     "Give the process more memory, or attach to fewer objects.", Reason::kNone,
     v1::GAP_OUT_OF_MEMORY},
    {"RJD-G006", "no memory for counters on this GPU",
     "The agent found no memory that both the GPU can update atomically and the host can read. "
     "The original was loaded.",
     "Check the process's GPU memory use and the device's memory pools.", Reason::kNone,
     v1::GAP_NO_COUNTER_MEMORY},
    {"RJD-G007", "the runtime refused the patched image",
     "The ROCm loader rejected the patched code object, and the original was loaded in its "
     "place. This should not happen: the image passed validation.",
     "Report this as a bug, with the code object's hash and the runtime's version.", Reason::kNone,
     v1::GAP_PATCHED_LOAD_FAILED},
    {"RJD-G008", "the code object could not be read",
     "The agent saw the load but could not read the bytes behind it, for example because a file "
     "had vanished. The runtime went its own way.",
     "Look at the recorded origin and its permissions.", Reason::kNone, v1::GAP_UNREADABLE_OBJECT},
    {"RJD-G009", "dispatches of some queues are not directed",
     "Attaching to a running process directs dispatches, which the agent sees on queues that it "
     "has made with interception. Cooperative queues cannot be made so, nor those of a process "
     "whose ROCR did not load the agent as a tool. What was loaded runs on them.",
     "Attach before the process starts, and run it with both LD_PRELOAD and HSA_TOOLS_LIB, as "
     "rjctl run does.",
     Reason::kNone, v1::GAP_QUEUE_NOT_INTERCEPTED},

    {"RJD-O001", "the bytes are not a well-formed AMDGPU code object",
     "Headers, tables or notes are missing, out of range or contradict each other. Such bytes "
     "are never patched.",
     "Check where the object comes from; compare it with a fresh build."},
    {"RJD-O002", "the code object is too large",
     "Work and memory grow with the size of an object, so there is a limit.",
     "Raise the object size limit in the daemon's configuration if the object is genuine."},
    {"RJD-O003", "the code object's ABI or machine is not supported",
     "The object is well-formed, but its ABI version or its processor is outside what the engine "
     "knows. Guessing at an encoding could corrupt the program.",
     "Rebuild for a supported target, or use a newer version of rjdbi."},
    {"RJD-O004", "the kernel has two hardware entries",
     "Kernels with preloaded arguments start at one of two places, depending on firmware. A "
     "probe at the entry would miss executions that start at the other.",
     "Choose sites after the entry, or build the kernel without argument preloading.",
     Reason::kKernargPreloadEntry},
    {"RJD-O005", "no hardware tables for this processor",
     "Register files, hazards and wait counters differ between generations. Without tables "
     "nothing about the kernel can be guaranteed. Some processors are known to rjdbi, but not to "
     "the LLVM that it was built with: the refusal names the version that is needed.",
     "Rebuild for a supported target, or use rjdbi built with a newer LLVM.",
     Reason::kUnknownProcessor},
    {"RJD-O006", "the assembler refused the probe's text",
     "The engine produced a sequence that LLVM does not assemble for this processor. This is a "
     "bug of rjdbi; the original is loaded.",
     "Report this as a bug, with the processor's name.", Reason::kAssemblerFailed},
    {"RJD-O007", "the patched image failed validation",
     "An independent check of the rewritten bytes found a difference from what was admitted. "
     "This is a bug of rjdbi; the image is discarded and the original is loaded.",
     "Report this as a bug, with the code object's hash and the finding."},
    {"RJD-O008", "the engine failed on this code object",
     "An internal step failed that should not fail. This is a bug of rjdbi; the original is "
     "loaded.",
     "Report this as a bug, with the code object's hash and the message."},
    {"RJD-O009", "the analysis worker did not survive this code object",
     "Foreign bytes are analysed in a process of its own, with limits on time and memory. It "
     "crashed or reached a limit; the original is loaded.",
     "Report this with the code object's hash; raise the worker's limits if the object is "
     "genuine and large."},
    {"RJD-O010", "the object carries patches that cannot be taken back",
     "rjdbi has patched these bytes before. It never patches its own code: it restores the "
     "original first, from a record in the object, and patches that. Here the record is gone, "
     "damaged or of a later version, or the file was changed since, so that nobody can say what "
     "the original was.",
     "Give the original, or patch it again."},
    {"RJD-O011", "the patched code uses a register too early",
     "Results of memory operations arrive late, and code has to wait for them. In the patched "
     "code an instruction uses, or overwrites, a register that an operation may still write, "
     "where the original waited. This is a bug of rjdbi; the image is discarded and the original "
     "is loaded. Waits that the original itself lacks are no reason to refuse: they are listed "
     "as the application's own.",
     "Report this as a bug, with the code object's hash and the finding."},

    {"RJD-P001", "no branch reaches the probe from here",
     "The site's instruction is replaced by one direct branch, which reaches 128 KiB. Neither "
     "the new code nor any gap between kernels that could hold a relay lies within reach.",
     "Choose another site, nearer to the end of the code or to a gap.", Reason::kOutOfBranchReach},
    {"RJD-P002", "the image has no room for another segment",
     "New code goes into a load segment of its own, whose program header takes the place of one "
     "that the loader does not need. This image has none to spare.",
     "Link the code object with the usual program headers (GNU_STACK present).",
     Reason::kNoSegmentSlot},
    {"RJD-P003", "the kernel cannot be cloned",
     "A clone is the kernel written anew with the probes in line, which is possible where all that "
     "depends on the kernel's address is known, every branch still reaches its target, no other "
     "attachment asks for trampolines in the kernel and the image's growth is within budget. The "
     "kernel takes trampolines instead, unless an attachment insists on a clone.",
     "Leave the choice to the engine (--placement auto), or ask for trampolines.",
     Reason::kNotClonable},
    {"RJD-P004", "the kernel cannot run from an image beside the loaded original",
     "A code object that is loaded already keeps its bytes. Kernels with probes come in an image "
     "of their own beside it, and dispatches are directed there. Such a kernel is a clone that "
     "uses the loaded original's variables and functions at their addresses, so all that it makes "
     "of its own address must be known, and every branch must reach its target. Trampolines would "
     "change code that may be running.",
     "Restart the process with the attachment in place: as the object is loaded the kernel can "
     "take trampolines. For an attachment that asks for trampolines, leave the choice to the "
     "engine (--placement auto).",
     Reason::kNotBeside},

    {"RJD-R001", "no pair of scalar registers is free",
     "The probe needs aligned scalar registers for saved state. All are live at the site, and "
     "the allocation cannot grow enough.",
     "Choose a site with fewer live scalar registers.", Reason::kNoSgprPair},
    {"RJD-R002", "no vector registers are free",
     "The probe needs vector registers for address and data. All are live at the site, and the "
     "allocation cannot grow enough.",
     "Choose a site with fewer live vector registers.", Reason::kNoVgprs},
    {"RJD-R003", "the scalar register allocation cannot grow",
     "The hardware has no more addressable scalar registers for a wavefront.",
     "Choose a site with fewer live scalar registers.", Reason::kSgprGrowthImpossible},
    {"RJD-R004", "the vector register allocation cannot grow",
     "The hardware has no more addressable vector registers for a wavefront.",
     "Choose a site with fewer live vector registers.", Reason::kVgprGrowthImpossible},
    {"RJD-R005", "the link register pair is not available",
     "A probe that calls needs s[30:31] for the return address. At this site the pair is live, "
     "the target of a load in flight, or outside the kernel's allocation.",
     "Use a probe that does not call, or choose a site where s[30:31] is free.",
     Reason::kLinkPairUnavailable},

    {"RJD-S001", "the site is a branch of an uncommon kind",
     "Common direct branches are made anew in the probe's code, for their target's new distance. "
     "This one tests state of a debugger, or does more than branch.",
     "Choose the instruction before the branch, or the first one of its target.",
     Reason::kSiteBranch},
    {"RJD-S002", "the site transfers control indirectly",
     "Jumps through registers, calls and returns depend on addresses that are not known in "
     "advance.",
     "Choose the instruction before it.", Reason::kSiteIndirectTransfer},
    {"RJD-S003", "the site ends the program in an uncommon way",
     "A plain end of program is executed from the probe's code. This one saves state or orders "
     "work besides, and tools look for it in its place.",
     "Choose the instruction before it.", Reason::kSiteProgramEnd},
    {"RJD-S004", "the site reads the program counter",
     "Run from another address the instruction would give another result, and code near it "
     "relies on the distance.",
     "Choose a neighbouring instruction.", Reason::kSitePcRelative},
    {"RJD-S005", "the site lies inside a clause that cannot be split",
     "The instructions of a clause must follow each other without interruption, and this clause "
     "holds a control transfer or another clause, or reaches past the kernel's end: compilers "
     "make none such, and which instructions it covers is not certain. Other clauses are split.",
     "Choose the instruction before the clause, or the first one after it.",
     Reason::kSiteInsideClause},
    {"RJD-S006", "the site lies in a register-indexing region",
     "In such a region register numbers in the code are offset at run time, so a probe would "
     "touch registers other than those it names.",
     "Choose an instruction outside the region.", Reason::kSiteInsideGprIndexRegion},
    {"RJD-S007", "the kernel does not decode at the site",
     "Some bytes around the site are no instruction of this processor. What the code does there "
     "is unknown, so it is left alone.",
     "Check that the object was built for this processor.", Reason::kSiteUndecodable},
    {"RJD-S008", "a branch lands inside the displaced bytes",
     "The bytes that the jump to the probe would cover are the target of another branch.",
     "Choose the instruction at the branch's target.", Reason::kSiteBranchTargetInside},
    {"RJD-S009", "control flow around the site is unresolved",
     "An indirect branch of the kernel may land anywhere, so neither the bytes nor the registers "
     "at the site can be claimed.",
     "Choose a kernel without indirect branches.", Reason::kSiteUnresolvedControl},
    {"RJD-S010", "the instruction is too short for a branch",
     "The jump to the probe has to fit into the bytes of the instruction it replaces.",
     "Choose a longer instruction.", Reason::kSiteTooShort},
    {"RJD-S011", "the kernel has released its registers before the site",
     "After a message that deallocates vector registers no probe can use any.",
     "Choose an instruction before the message.", Reason::kSiteDealloc},
    {"RJD-S012", "no instruction starts at this offset",
     "The offset points into an instruction or past the end of the kernel.",
     "List the kernel's sites and use one of their offsets."},
    {"RJD-S013", "the kernel's code cannot be read",
     "The kernel's address range is not backed by the file, or its code could not be set up for "
     "analysis.",
     "Check the object with a disassembler; other kernels are unaffected."},
    {"RJD-S014", "nothing simply follows this instruction",
     "A probe behind an instruction runs where control falls through from it. Behind a branch, a "
     "call, an indirect transfer or an end of program there is no such place.",
     "Attach before the instruction, or to the first instruction that it leads to.",
     Reason::kSiteNothingAfter},
    {"RJD-S015", "the code object has no line table",
     "The selector names lines of source code, and the object does not say which instructions "
     "belong to which: it was built without debug information, or stripped. Nothing is selected "
     "on a guess.",
     "Build the kernel with -gline-tables-only or -g, or select by opcode, offset or family.",
     Reason::kNoLineTable},
    {"RJD-S016", "the code object's debug information cannot be read",
     "The selector names lines of source code, and the object's line table contradicts itself, is "
     "compressed, or is of a kind that is not known. Nothing is selected on a guess.",
     "Decompress or rebuild the debug information, or select by opcode, offset or family.",
     Reason::kBadDebugInfo},
    {"RJD-S017", "the instruction accesses no memory",
     "An address can be recorded only where there is one: at loads, stores and atomics.",
     "Select memory instructions (--sites memory), or use another probe.", Reason::kNoAddress},
    {"RJD-S018", "the instruction's addresses cannot be recorded",
     "Addresses are recorded from the instruction's operands as they are. Image accesses, loads "
     "into LDS, and addresses that come from M0 or from the lane's number are not the sum of such "
     "operands.",
     "Choose another memory instruction, or use a probe without addresses.", Reason::kAddressForm},
    {"RJD-S019", "the instruction overwrites its own address",
     "Behind the instruction the registers that held its address hold something else.",
     "Attach before the instruction.", Reason::kAddressLost},
    {"RJD-S020", "the kernel has no such register here",
     "The register does not exist with this wavefront size, in which EXEC has one half only.",
     "Name a register that the kernel's disassembly shows.", Reason::kValueNotThere},
    {"RJD-S021", "nothing keeps the register's value here",
     "Nothing reads the register after this place, so that neither the compiler nor other probes "
     "keep what it holds; a record would show something accidental.",
     "Choose an instruction that reads the register, or one between its write and its last use.",
     Reason::kValueNotLive},
    {"RJD-S022", "a load may still write the register",
     "A memory operation that was issued earlier delivers its result into the register some time. "
     "Until it was waited for, what the register holds is not defined.",
     "Choose an instruction behind the wait, or the first one that reads the register.",
     Reason::kValueInFlight},
    {"RJD-S023", "too many sites write records",
     "A record names its site in 20 bits, so that one code object can have no more than 1048576 "
     "such sites.",
     "Select fewer sites.", Reason::kTooManyRecordSites},
    {"RJD-S024", "vector register numbers change their meaning in the kernel",
     "The kernel uses more than 256 vector registers through s_set_vgpr_msb or the MODE register, "
     "or allocates vector registers as it runs. Which registers are live or free at a site is not "
     "told by the numbers in its instructions.",
     "Build the kernel for fewer vector registers.", Reason::kSiteVgprNumbers},
    {"RJD-S025", "only counters run on this processor",
     "What writes records, and users' probes, depend on how the processor waits, orders memory, "
     "keeps hazards apart and numbers its workgroups. For this one that is not known well enough.",
     "Use count-waves, count-lanes or block-count.", Reason::kOnlyCounters},

    {"RJD-U001", "the probe's function has no usable size",
     "A probe is put in line at every site, and the engine looks at each of its instructions. "
     "Its size comes from the function's symbol.",
     "Split the probe, or give it less to do.", Reason::kNone, v1::GAP_KIND_UNSPECIFIED,
     BodyRule::kSize},
    {"RJD-U002", "the probe's function needs a linker",
     "Addresses that a linker or loader would fill in mean something only inside the probe's own "
     "object: global variables, constants in memory, functions that were not inlined.",
     "Pass what is needed as arguments, and mark helper functions always_inline.", Reason::kNone,
     v1::GAP_KIND_UNSPECIFIED, BodyRule::kRelocation},
    {"RJD-U003", "the probe's function does not decode",
     "The bytes between the function's start and end must be instructions of the processor that "
     "its object names, one after the other and nothing else.",
     "Compile the probe for the processor, with the compiler's defaults.", Reason::kNone,
     v1::GAP_KIND_UNSPECIFIED, BodyRule::kUndecodable},
    {"RJD-U004", "control leaves the probe's function",
     "In line, the code behind the function is the application's. Control may go to instructions "
     "of the function and to its end, by its return and nothing else.",
     "Let the function return normally; do not use assembly that branches elsewhere.",
     Reason::kNone, v1::GAP_KIND_UNSPECIFIED, BodyRule::kControl},
    {"RJD-U005", "the probe calls, or jumps to a computed address",
     "What another function does is not known, and a call needs a stack and registers that the "
     "application may be using.",
     "Mark the functions that the probe uses always_inline, and turn optimisation on.",
     Reason::kNone, v1::GAP_KIND_UNSPECIFIED, BodyRule::kCall},
    {"RJD-U006", "the probe loops without a known bound",
     "A wavefront that runs through a site must come out again, and after a number of "
     "instructions that can be stated. Loops are written out where the number of rounds follows "
     "from constants in scalar registers, and 1024 instructions are enough for it.",
     "Count with a uniform variable from a constant to a constant, or have the compiler unroll the "
     "loop.",
     Reason::kNone, v1::GAP_KIND_UNSPECIFIED, BodyRule::kLoop},
    {"RJD-U007", "the probe uses the stack or a resource descriptor",
     "The application's wavefronts have no stack for the probe, and buffer and image resources "
     "are in registers that only the application fills.",
     "Turn optimisation on, keep values in few variables, and take no address of a local one.",
     Reason::kNone, v1::GAP_KIND_UNSPECIFIED, BodyRule::kStack},
    {"RJD-U008", "the probe uses LDS",
     "LDS is allocated by the kernel that is running and holds its data.",
     "Count in the telemetry block instead.", Reason::kNone, v1::GAP_KIND_UNSPECIFIED,
     BodyRule::kLds},
    {"RJD-U009", "the probe has an instruction that no probe may have",
     "Barriers, messages, traps, priorities and hardware registers reach beyond the wavefront or "
     "change how the application's own instructions work.",
     "Remove what makes the compiler emit the instruction.", Reason::kNone,
     v1::GAP_KIND_UNSPECIFIED, BodyRule::kForbidden},
    {"RJD-U010", "the probe touches a register that it cannot have",
     "In line the probe's scalar and vector registers are renamed to free ones, and VCC, EXEC, "
     "M0 and SCC are restored. Others belong to the application or to the calling convention.",
     "Remove what makes the compiler use the register.", Reason::kNone, v1::GAP_KIND_UNSPECIFIED,
     BodyRule::kRegister},
    {"RJD-U011", "the probe reads what no argument gives it",
     "Functions of the AMDGPU calling convention find workgroup ids, work-item ids, the dispatch "
     "packet and the stack in fixed registers. At a site in the middle of a kernel these hold "
     "something else.",
     "Take the value as an argument, named in the manifest.", Reason::kNone,
     v1::GAP_KIND_UNSPECIFIED, BodyRule::kInput},
    {"RJD-U012", "the probe returns while a load is in flight",
     "A load that completes later would write a register that the application is using again.",
     "Let the compiler place the waits: do not load by inline assembly.", Reason::kNone,
     v1::GAP_KIND_UNSPECIFIED, BodyRule::kLoadsLeft},
    {"RJD-U013", "the probe is compiled for another processor",
     "Machine code of one processor is not that of another, and code that is compiled for memory "
     "that may fault or be corrected is compiled differently.",
     "Compile the probe for the code object's processor, without feature suffixes or with the "
     "same ones."},
    {"RJD-U014", "the probe is compiled for another wavefront size",
     "Masks of lanes, EXEC and VCC are 32 bits wide in one mode and 64 in the other.",
     "Compile the probe with the kernel's wavefront size and say so in its manifest."},
    {"RJD-U015", "an argument of the probe does not exist here",
     "Each argument names a value of the site: the address of a memory instruction, a register "
     "that the kernel uses. Here there is none, or it cannot be read without disturbing it.",
     "Select sites that have the value, or ask for another argument.", Reason::kProbeArgument},
    {"RJD-U016", "the probe's object cannot be read",
     "A probe comes as a relocatable or linked AMDGPU object, or as an offload bundle of these, "
     "for processors that the engine has tables for.",
     "Compile it as docs/user-probes.md shows."},
    {"RJD-U017", "the probe's manifest cannot be used",
     "The manifest is a text that names the probe, its function, what to pass to it and what it "
     "does. Nothing is attached on a guess of what was meant.",
     "Correct the line that the message names; rjctl infer writes a manifest to start from."},
    {"RJD-U018", "the manifest speaks of another function",
     "A manifest is a statement about certain bytes, which it names by their digest. The object "
     "has no such function, or its function has changed since.",
     "Read what changed (rjctl check), and write the manifest anew (rjctl infer)."},
};

const CatalogueEntry& EngineFault() { return *Find(id::kEngineFault); }

}  // namespace

absl::Span<const CatalogueEntry> All() { return kCatalogue; }

const CatalogueEntry* Find(std::string_view id) {
  const auto* it = std::lower_bound(
      std::begin(kCatalogue), std::end(kCatalogue), id,
      [](const CatalogueEntry& e, std::string_view wanted) { return e.id < wanted; });
  return it != std::end(kCatalogue) && it->id == id ? it : nullptr;
}

const CatalogueEntry& ForReason(patch::Reason reason) {
  for (const CatalogueEntry& e : kCatalogue) {
    if (e.reason == reason && reason != Reason::kNone) return e;
  }
  return EngineFault();
}

const CatalogueEntry& ForRule(BodyRule rule) {
  for (const CatalogueEntry& e : kCatalogue) {
    if (e.rule == rule) return e;
  }
  return EngineFault();
}

const CatalogueEntry& ForGap(v1::GapKind kind) {
  for (const CatalogueEntry& e : kCatalogue) {
    if (e.gap == kind && kind != v1::GAP_KIND_UNSPECIFIED) return e;
  }
  return EngineFault();
}

v1::Violation MakeViolation(std::string_view id, std::string observed, std::string limit,
                            const v1::Location& location, std::string message) {
  const CatalogueEntry* entry = Find(id);
  const CatalogueEntry& e = entry != nullptr ? *entry : EngineFault();
  v1::Violation v;
  v.set_constraint_id(std::string(e.id));
  v.set_observed(std::move(observed));
  v.set_limit(std::move(limit));
  *v.mutable_location() = location;
  if (message.empty()) message = std::string(e.title);
  v.set_message(std::move(message));
  v.set_next_step(std::string(e.next_step));
  return v;
}

v1::Violation MakeViolation(const patch::Refusal& refusal, const v1::Location& location) {
  return MakeViolation(ForReason(refusal.reason).id, refusal.observed, refusal.limit, location,
                       refusal.detail);
}

v1::Degradation MakeDegradation(std::string_view id, std::string message) {
  v1::Degradation d;
  d.set_constraint_id(std::string(id));
  d.set_message(std::move(message));
  return d;
}

}  // namespace rjdbi::contract
