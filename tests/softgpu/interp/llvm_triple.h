// LLVM 22 wants a Triple where older versions want its text.
#ifndef TESTS_SOFTGPU_INTERP_LLVM_TRIPLE_H_
#define TESTS_SOFTGPU_INTERP_LLVM_TRIPLE_H_

#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/TargetParser/Triple.h"

namespace softgpu {

#if LLVM_VERSION_MAJOR >= 22
using TripleArgument = llvm::Triple;
#else
using TripleArgument = llvm::StringRef;
#endif
inline TripleArgument AmdgpuTriple() { return TripleArgument("amdgcn-amd-amdhsa"); }

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_LLVM_TRIPLE_H_
