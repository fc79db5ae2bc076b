// A small reader of XML as NCCL and hwloc write it: elements and attributes. Comments,
// declarations, text, and a DOCTYPE that only names a file (which is not read) are passed over. Of
// entities, the five of XML and numbers of ASCII characters are known; others, CDATA and DTDs
// within the file are refused, so that nothing grows while it is read.
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
