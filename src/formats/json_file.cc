#include "formats/json_file.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace jige::formats {

std::string json_of_python(std::string_view text) {
  std::string json;
  json.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string_view word;
    if (!in_string && (text[i] == 'I' || text[i] == '-' || text[i] == 'N')) {
      for (const std::string_view one : {"Infinity", "-Infinity", "NaN"}) {
        if (text.substr(i).starts_with(one)) word = one;
      }
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
