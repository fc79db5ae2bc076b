#include "topology/xml.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"

namespace jige::topology {
namespace {

constexpr size_t kElementsMax = 100'000;
constexpr size_t kAttributesMax = 256;  // of an element

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_name_char(char c) {
  return is_ascii_alphanumeric(c) || c == '_' || c == '-' || c == '.' || c == ':';
}

class XmlReader {
 public:
  XmlReader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<XmlElement> run() {
    JIGE_DO(skip_to_tag());
    if (!starts("<") || starts("</")) return wrong("an element must come first");
    JIGE_TRY(XmlElement root, element(1));
    JIGE_DO(skip_to_tag());
    if (at_ < text_.size()) return wrong("there is a second root element");
    return root;
  }

 private:
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  // Counted on from the last call: at_ never goes back.
  size_t line() const {
    const size_t end = std::min(at_, text_.size());
    const std::string_view passed = text_.substr(counted_, end - counted_);
    line_ += static_cast<size_t>(std::ranges::count(passed, '\n'));
    counted_ = end;
    return line_;
  }
  tl::unexpected<Error> wrong(std::string_view why) const {
    return fail(Code::kCorrupt, "{}:{}: not valid XML: {}", where_, line(), why);
  }

  // Past text, comments and declarations to the next tag or the end.
  Status skip_to_tag() {
    for (;;) {
      at_ = std::min(text_.find('<', at_), text_.size());
      const std::string_view end = starts("<!--")        ? "-->"
                                   : starts("<?")        ? "?>"
                                   : starts("<!DOCTYPE") ? ">"
                                                         : "";
      if (end.empty()) {
        if (starts("<!")) return wrong("declarations of types are not supported");
        return {};
      }
      const size_t close = text_.find(end, at_);
      if (close == std::string_view::npos) return wrong(fmt::format("\"{}\" is missing", end));
      if (end == ">" && text_.substr(at_, close - at_).find('[') != std::string_view::npos) {
        return wrong("declarations of types are not supported");
      }
      at_ = close + end.size();
    }
  }

  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  // The character that "&#10;" or "&#xA;" stands for, and drops it from `raw`.
  Result<char> numbered(std::string_view& raw) const {
    const bool hexadecimal = raw.starts_with("&#x");
    const size_t digits = hexadecimal ? 3 : 2;
    const size_t end = std::min(raw.find(';'), raw.size());
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(raw.data() + std::min(digits, end), raw.data() + end,
                                               value, hexadecimal ? 16 : 10);
    const bool whole = error == std::errc() && end < raw.size() && stop == raw.data() + end;
    if (!whole || value == 0 || value > 126) return wrong("a numbered character is not ASCII");
    raw.remove_prefix(end + 1);
    return static_cast<char>(value);
  }

  Result<std::string> unescaped(std::string_view raw) const {
    static constexpr std::pair<std::string_view, char> kEntities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    std::string out;
    while (!raw.empty()) {
      if (raw[0] != '&') {
        out += raw[0];
        raw.remove_prefix(1);
        continue;
      }
      if (raw.starts_with("&#")) {
        JIGE_TRY(const char character, numbered(raw));
        out += character;
        continue;
      }
      const auto* const found = std::ranges::find_if(
          kEntities, [&](const auto& entity) { return raw.starts_with(entity.first); });
      if (found == std::end(kEntities)) return wrong("an entity is not one of XML's five");
      out += found->second;
      raw.remove_prefix(found->first.size());
    }
    return out;
  }

  Status attributes(XmlElement& element) {
    for (skip_space(); at_ < text_.size() && is_name_char(text_[at_]); skip_space()) {
      const std::string key = name();
      skip_space();
      if (!starts("=")) return wrong(fmt::format("attribute {} has no value", key));
      ++at_;
      skip_space();
      if (!starts("\"") && !starts("'"))
        return wrong(fmt::format("attribute {} is not quoted", key));
      const char quote = text_[at_++];
      const size_t end = text_.find(quote, at_);
      if (end == std::string_view::npos)
        return wrong(fmt::format("attribute {} does not end", key));
      if (element.attributes.size() == kAttributesMax) {
        return wrong(
            fmt::format("element {} has more than {} attributes", element.name, kAttributesMax));
      }
      if (element.attribute(key)) return wrong(fmt::format("attribute {} is given twice", key));
      JIGE_TRY(std::string value, unescaped(text_.substr(at_, end - at_)));
      element.attributes.emplace_back(key, std::move(value));
      at_ = end + 1;
    }
    return {};
  }

  Result<XmlElement> element(int depth) {
    if (depth > kXmlDepthMax) return wrong(fmt::format("nested deeper than {}", kXmlDepthMax));
    if (++count_ > kElementsMax) return wrong(fmt::format("more than {} elements", kElementsMax));
    XmlElement result;
    ++at_;
    result.line = line();
    result.name = name();
    if (result.name.empty()) return wrong("an element has no name");
    JIGE_DO(attributes(result));
    if (starts("/>")) {
      at_ += 2;
      return result;
    }
    if (!starts(">")) return wrong(fmt::format("element {} does not end", result.name));
    ++at_;
    for (;;) {
      JIGE_DO(skip_to_tag());
      if (at_ >= text_.size()) return wrong(fmt::format("element {} is not closed", result.name));
      if (starts("</")) {
        at_ += 2;
        const std::string closed = name();
        skip_space();
        if (closed != result.name || !starts(">")) {
          return wrong(fmt::format("</{}> closes <{}>", closed, result.name));
        }
        ++at_;
        return result;
      }
      JIGE_TRY(XmlElement child, element(depth + 1));
      result.children.push_back(std::move(child));
    }
  }

  std::string_view text_, where_;
  size_t at_ = 0;
  size_t count_ = 0;
  mutable size_t line_ = 1, counted_ = 0;
};

}  // namespace

const std::string* XmlElement::attribute(std::string_view wanted) const {
  for (const auto& [key, value] : attributes) {
    if (key == wanted) return &value;
  }
  return nullptr;
}

Result<XmlElement> parse_xml(std::string_view text, std::string_view where) {
  return XmlReader(text, where).run();
}

}  // namespace jige::topology
