// A small reader of XML as NCCL writes it: elements and attributes. Comments, declarations and text
// are passed over; entities other than the five of XML, CDATA and DTDs are refused.
//
//   JIGE_TRY(const XmlElement root, parse_xml(text, path));
//
// Threads: values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace jige::topology {

inline constexpr int kXmlDepthMax = 64;

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  size_t line = 0;

  const std::string* attribute(std::string_view wanted) const;  // nullptr: absent
};

// The root element. Fails with kCorrupt, naming `where` and the line.
Result<XmlElement> parse_xml(std::string_view text, std::string_view where);

}  // namespace jige::topology
