#include "formats/json_file.h"

#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "formats/json_sax.h"

namespace jige::formats {
namespace {

// Accepts any JSON object whose objects have distinct names and are not too deep.
class StructureCheck : public SaxReader {
 public:
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(int64_t) override { return value(); }
  bool number_unsigned(uint64_t) override { return value(); }
  bool number_float(double, const std::string&) override { return value(); }
  bool string(std::string&) override { return value(); }
  bool start_object(size_t) override { return enter(true); }
  bool key(std::string& name) override {
    std::unordered_set<std::string>& names = names_.back();
    if (!names.insert(name).second) return refuse("field \"{}\" appears twice", name);
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(false); }
  bool end_array() override { return leave(); }

 protected:
  std::string place() const override { return "the text"; }

 private:
  bool value() { return names_.empty() ? refuse("must be a JSON object") : true; }
  bool enter(bool is_object) {
    if (names_.empty() && !is_object) return refuse("must be a JSON object");
    if (names_.size() >= static_cast<size_t>(kJsonDepthMax)) {
      return refuse("JSON is nested deeper than {} levels", kJsonDepthMax);
    }
    names_.emplace_back();
    return true;
  }
  bool leave() {
    names_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>>
      names_;  // of the open objects; empty sets for arrays
};

}  // namespace

Result<Json> parse_json_object(std::string_view text, std::string_view where) {
  JIGE_DO(StructureCheck().run(text, where));
  return parse_json(text, where);
}

std::string json_of_python(std::string_view text) {
  std::string json;
  json.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string_view word;
    for (const std::string_view one : {"Infinity", "-Infinity", "NaN"}) {
      if (!in_string && text.substr(i).starts_with(one)) word = one;
    }
    if (!word.empty()) {
      json.append("{\"__float__\": \"").append(word).append("\"}");
      i += word.size() - 1;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    json.push_back(text[i]);
    if (in_string && text[i] == '\\' && i + 1 < text.size()) json.push_back(text[++i]);
  }
  return json;
}

Result<Json> load_json_object(const std::string& path, size_t size_max) {
  JIGE_TRY(const std::string text, read_file(path, size_max));
  return parse_json_object(text, path);
}

}  // namespace jige::formats
