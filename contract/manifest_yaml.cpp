// See the header.
#include "contract/manifest_yaml.h"

#include <google/protobuf/descriptor.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "contract/text.h"

namespace rjdbi::contract {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string At(const YAML::Mark& mark, std::string_view what) {
  if (mark.is_null()) return std::string(what);
  return StrCat("line ", mark.line + 1, ", column ", mark.column + 1, ": ", what);
}

std::string_view TypeName(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "fields";
    case FieldDescriptor::CPPTYPE_ENUM:
      return "a name";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a text";
    default:
      return "a whole number of 0 or more";
  }
}

std::string_view Found(const YAML::Node& node) {
  if (node.IsMap()) return "fields";
  if (node.IsSequence()) return "a list";
  return "nothing";
}

// All values of an enum that can be written, for an error.
std::string EnumNames(const FieldDescriptor& field) {
  std::string names;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const EnumValueDescriptor* value = field.enum_type()->value(i);
    if (value->number() != 0) StrAppend(&names, names.empty() ? "" : ", ", value->name());
  }
  return names;
}

class Reader {
 public:
  explicit Reader(const FieldPlace& place) : place_(place) {}

  void Fields(const YAML::Node& node, const std::string& prefix, Message* message) {
    std::set<std::string> seen;
    std::set<const google::protobuf::OneofDescriptor*> chosen;
    for (const auto& entry : node) {
      if (!error_.empty()) return;
      if (!entry.first.IsScalar()) return Fail(entry.first, "expected the name of a field");
      const std::string name = entry.first.Scalar();
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
      if (field == nullptr) {
        return Fail(entry.first,
                    StrCat("unknown field \"", name, "\"; known are ", FieldNames(*message)));
      }
      if (!seen.insert(name).second) return Fail(entry.first, StrCat(name, " is given twice"));
      const auto* oneof = field->containing_oneof();
      if (oneof != nullptr && !chosen.insert(oneof).second) {
        return Fail(entry.first,
                    StrCat(name, ": only one field of the ", oneof->name(), " can be given"));
      }
      Place(prefix + name, entry.first);
      key_ = entry.first.Mark();
      Field(entry.second, *field, prefix + name, message);
    }
  }

  const std::string& error() const { return error_; }

 private:
  static std::string FieldNames(const Message& message) {
    std::string names;
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      StrAppend(&names, i > 0 ? ", " : "", message.GetDescriptor()->field(i)->name());
    }
    return names;
  }

  void Fail(const YAML::Node& node, std::string_view what) {
    // A value that is not there has the place of what follows.
    if (error_.empty()) error_ = At(node.IsNull() ? key_ : node.Mark(), what);
  }

  void Place(const std::string& name, const YAML::Node& node) {
    place_(name, static_cast<uint32_t>(node.Mark().line) + 1,
           static_cast<uint32_t>(node.Mark().column) + 1);
  }

  void Field(const YAML::Node& node, const FieldDescriptor& field, const std::string& name,
             Message* message) {
    if (!field.is_repeated()) return Value(node, field, name, message);
    if (!node.IsSequence()) {  // one value is a list of one
      Place(StrCat(name, "[0]"), node);
      return Value(node, field, StrCat(name, "[0]"), message);
    }
    int number = 0;
    for (const YAML::Node& element : node) {
      if (!error_.empty()) return;
      const std::string element_name = StrCat(name, "[", number++, "]");
      Place(element_name, element);
      Value(element, field, element_name, message);
    }
  }

  void Value(const YAML::Node& node, const FieldDescriptor& field, const std::string& name,
             Message* message) {
    const Reflection& reflection = *message->GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!node.IsMap()) return Fail(node, StrCat(name, ": expected ", TypeName(field)));
      Message* nested = field.is_repeated() ? reflection.AddMessage(message, &field)
                                            : reflection.MutableMessage(message, &field);
      return Fields(node, name + ".", nested);
    }
    if (!node.IsScalar()) {
      return Fail(node, StrCat(name, ": expected ", TypeName(field), ", found ", Found(node)));
    }
    Scalar(node, field, name, message);
  }

  void Scalar(const YAML::Node& node, const FieldDescriptor& field, const std::string& name,
              Message* message) {
    const Reflection& reflection = *message->GetReflection();
    const std::string& text = node.Scalar();
    const bool repeated = field.is_repeated();
    const auto wrong = [&] {
      Fail(node, StrCat(name, ": expected ", TypeName(field), ", found \"", text, "\""));
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        if (repeated) return reflection.AddString(message, &field, text);
        return reflection.SetString(message, &field, text);
      case FieldDescriptor::CPPTYPE_BOOL:
        if (text != "true" && text != "false") return wrong();
        return reflection.SetBool(message, &field, text == "true");
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* value = field.enum_type()->FindValueByName(text);
        if (value == nullptr || value->number() == 0) {
          return Fail(node, StrCat(name, ": unknown \"", text, "\"; known are ", EnumNames(field)));
        }
        if (repeated) return reflection.AddEnum(message, &field, value);
        return reflection.SetEnum(message, &field, value);
      }
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_UINT64: {
        uint64_t number = 0;
        const auto end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, number);
        if (text.empty() || read.ec == std::errc::invalid_argument || read.ptr != end) {
          return wrong();
        }
        const bool narrow = field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32;
        if (read.ec != std::errc() || (narrow && number > std::numeric_limits<uint32_t>::max())) {
          return Fail(node, StrCat(name, ": ", text, " is out of range"));
        }
        if (narrow) return reflection.SetUInt32(message, &field, static_cast<uint32_t>(number));
        return reflection.SetUInt64(message, &field, number);
      }
      default:
        return Fail(node, StrCat(name, ": cannot be given in YAML"));
    }
  }

  const FieldPlace& place_;
  YAML::Mark key_;
  std::string error_;
};

void Emit(const Message& message, YAML::Emitter* out);

void EmitValue(const Message& message, const FieldDescriptor& field, int index,
               YAML::Emitter* out) {
  const Reflection& r = *message.GetReflection();
  const bool repeated = index >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Emit(
          repeated ? r.GetRepeatedMessage(message, &field, index) : r.GetMessage(message, &field),
          out);
    case FieldDescriptor::CPPTYPE_ENUM:
      *out << (repeated ? r.GetRepeatedEnum(message, &field, index) : r.GetEnum(message, &field))
                  ->name();
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      *out << r.GetBool(message, &field);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      *out << r.GetUInt32(message, &field);
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      *out << r.GetUInt64(message, &field);
      return;
    default:
      *out << YAML::DoubleQuoted
           << (repeated ? r.GetRepeatedString(message, &field, index)
                        : r.GetString(message, &field));
  }
}

void Emit(const Message& message, YAML::Emitter* out) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  *out << YAML::BeginMap;
  for (const FieldDescriptor* field : fields) {
    *out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      EmitValue(message, *field, -1, out);
      continue;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) *out << YAML::Flow;
    *out << YAML::BeginSeq;
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      EmitValue(message, *field, i, out);
    }
    *out << YAML::EndSeq;
  }
  *out << YAML::EndMap;
}

std::string_view Trimmed(std::string_view line) {
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!line.empty() && blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && blank(line.back())) line.remove_suffix(1);
  return line;
}

// "amdgpu {", as only protobuf text has it.
bool OpensMessage(std::string_view line) {
  size_t n = 0;
  while (n < line.size() && (std::isalnum(static_cast<unsigned char>(line[n])) || line[n] == '_')) {
    ++n;
  }
  const std::string_view rest = Trimmed(line.substr(n));
  return n > 0 && !rest.empty() && (rest[0] == '{' || rest[0] == '<');
}

}  // namespace

bool LooksLikeYaml(std::string_view text) {
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    if (first && line.substr(0, 3) == "---") return true;
    if (OpensMessage(line)) return false;
    first = false;
  }
  return true;
}

absl::Status ReadYaml(std::string_view text, const FieldPlace& place, Message* message) {
  try {  // yaml-cpp throws
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty() || !documents[0].IsMap()) {
      return absl::InvalidArgumentError(
          "line 1, column 1: expected fields, such as \"probe: ...\"");
    }
    if (documents.size() > 1) {
      return absl::InvalidArgumentError(
          At(documents[1].Mark(), "a second document; a manifest is one"));
    }
    Reader reader(place);
    reader.Fields(documents[0], "", message);
    if (!reader.error().empty()) return absl::InvalidArgumentError(reader.error());
    return absl::OkStatus();
  } catch (const YAML::DeepRecursion& e) {
    return absl::InvalidArgumentError(At(e.mark, "nested too deeply"));
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(At(e.mark, e.msg));
  }
}

std::string WriteYaml(const Message& message) {
  YAML::Emitter out;
  Emit(message, &out);
  return StrCat("---\n", out.c_str(), "\n");
}

}  // namespace rjdbi::contract
