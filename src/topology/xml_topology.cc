#include "topology/xml_topology.h"

#include <utility>

#include "base/file.h"
#include "topology/hwloc_topology.h"
#include "topology/nccl_topology.h"
#include "topology/xml.h"

namespace jige::topology {
namespace {

constexpr size_t kXmlFileBytesMax = size_t{16} << 20;

}  // namespace

Result<Description> description_from_xml(std::string_view xml, std::string_view where) {
  JIGE_TRY(const XmlElement root, parse_xml(xml, where));
  if (root.name == "topology") return description_from_hwloc(root, where);
  if (root.name == "system") return description_from_nccl(root, where);
  return fail(Code::kCorrupt,
              "{}:{}: begins with <{}>; topologies of NCCL begin with <system version=\"1\">, "
              "those of hwloc with <topology>",
              where, root.line, root.name);
}

Result<Topology> load_xml_topology(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kXmlFileBytesMax));
  JIGE_TRY(Description description, description_from_xml(text, path));
  return Topology::create(std::move(description), path);
}

}  // namespace jige::topology
