// Writes the code objects of fat binaries to files, for tests that hand them to
// programs: extract_code_objects OUT_DIR TARGET_SUBSTRING LIBRARY...
// Names are <library>-<index>-<processor>.co; prints each name.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/corpus/offload_bundle.h"

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s OUT_DIR TARGET_SUBSTRING LIBRARY...\n", argv[0]);
    return 2;
  }
  const std::filesystem::path out = argv[1];
  const std::string wanted = argv[2];
  int written = 0;
  for (int i = 3; i < argc; ++i) {
    const auto library = rjdbi::test::MappedFile::Open(argv[i]);
    const auto objects =
        library.ok() ? rjdbi::test::ExtractBundles(library->bytes())
                     : absl::StatusOr<std::vector<rjdbi::test::BundledObject>>(library.status());
    if (!objects.ok()) {
      std::fprintf(stderr, "%s: %s\n", argv[i], objects.status().ToString().c_str());
      return 1;
    }
    const std::string stem = std::filesystem::path(argv[i]).filename().string();
    int index = 0;
    for (const auto& object : *objects) {
      ++index;
      if (object.target.find(wanted) == std::string::npos) continue;
      const auto file = out / (stem + "-" + std::to_string(index) + "-" + wanted + ".co");
      std::ofstream(file, std::ios::binary)
          .write(reinterpret_cast<const char*>(object.bytes.data()),
                 static_cast<std::streamsize>(object.bytes.size()));
      std::printf("%s\n", file.c_str());
      ++written;
    }
  }
  if (written == 0) std::fprintf(stderr, "no code object for %s\n", wanted.c_str());
  return written > 0 ? 0 : 1;
}
