// Renders the catalogue of constraints: `rjdbi_catalogue_doc markdown` gives
// docs/reasons.md, `rjdbi_catalogue_doc scdoc` the source of rjdbi-reasons(7).
#include <cstdio>
#include <cstring>
#include <string>

#include "contract/catalogue_text.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "markdown") == 0) {
    std::fputs(rjdbi::contract::CatalogueMarkdown().c_str(), stdout);
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "scdoc") == 0) {
    std::fputs(rjdbi::contract::CatalogueScdoc().c_str(), stdout);
    return 0;
  }
  std::fprintf(stderr, "usage: %s markdown|scdoc\n", argv[0]);
  return 2;
}
