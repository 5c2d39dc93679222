// The catalogue as documents. Kept apart from catalogue.h so that nothing at run
// time depends on it.
#ifndef CONTRACT_CATALOGUE_TEXT_H_
#define CONTRACT_CATALOGUE_TEXT_H_

#include <string>

namespace rjdbi::contract {

std::string CatalogueMarkdown();  // docs/reasons.md
std::string CatalogueScdoc();     // rjdbi-reasons(7), for scdoc

}  // namespace rjdbi::contract

#endif  // CONTRACT_CATALOGUE_TEXT_H_
