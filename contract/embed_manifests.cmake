# Writes the manifests' texts as C++ string literals, so that a violation can
# name a line of a manifest that needs no file at run time.
# -DOUT=file.cpp -DFILES=a.textproto|b.textproto
string(REPLACE "|" ";" FILES "${FILES}")
set(body "// Generated from contract/manifests.\n#include \"contract/manifest.h\"\n\n")
string(APPEND body "namespace rjdbi::contract::internal {\n\n")
string(APPEND body "const EmbeddedManifest kEmbeddedManifests[] = {\n")
list(LENGTH FILES count)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND body "    {\"${name}\", R\"rjdbi(${text})rjdbi\"},\n")
endforeach()
string(APPEND body "};\nconst size_t kEmbeddedManifestCount = ${count};\n\n")
string(APPEND body "}  // namespace rjdbi::contract::internal\n")
file(WRITE ${OUT} "${body}")
