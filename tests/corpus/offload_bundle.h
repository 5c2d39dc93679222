// What corpus tests read libraries with, by the names that they use.
#ifndef TESTS_CORPUS_OFFLOAD_BUNDLE_H_
#define TESTS_CORPUS_OFFLOAD_BUNDLE_H_

#include "patch/codeobject/mapped_file.h"
#include "patch/codeobject/offload_bundle.h"

namespace rjdbi::test {

using patch::BundledObject;
using patch::ExtractBundles;
using patch::MappedFile;

}  // namespace rjdbi::test

#endif  // TESTS_CORPUS_OFFLOAD_BUNDLE_H_
