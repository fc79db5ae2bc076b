#include "topology/hwloc_topology.h"

#ifdef JIGE_HWLOC

#include <dlfcn.h>
#include <hwloc.h>

#include <memory>
#include <string>
#include <type_traits>

namespace jige::topology {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Machine = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

Result<std::string> machine_xml() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return fail(Code::kExhausted, "hwloc: no memory");
  const Machine machine(made);
  // These load the drivers of GPUs, which takes seconds, and tell nothing that PCI does not.
  for (const char* plugin : {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"}) {
    hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  }
  hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(made) != 0) {
    return fail(Code::kUnsupported, "hwloc cannot read this machine; --source sysfs may");
  }
  // It keeps the names of vendors for good. Unloaded with hwloc's plugin it would lose them, and
  // the next reading would make them again.
  dlopen("libpciaccess.so.0", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  char* text = nullptr;
  int size = 0;
  if (hwloc_topology_export_xmlbuffer(made, &text, &size, 0) != 0) {
    return fail(Code::kUnsupported, "hwloc cannot write this machine as XML");
  }
  std::string xml(text);
  hwloc_free_xmlbuffer(made, text);
  return xml;
}

}  // namespace

Result<Description> hwloc_description() {
  constexpr std::string_view kWhere = "hwloc's view of this machine";
  JIGE_TRY(const std::string xml, machine_xml());
  JIGE_TRY(const XmlElement root, parse_xml(xml, kWhere));
  JIGE_TRY(Description d, description_from_hwloc(root, kWhere));
  d.name = "this machine";
  return d;
}

}  // namespace jige::topology

#else

namespace jige::topology {

Result<Description> hwloc_description() {
  return fail(Code::kUnsupported,
              "this build has no hwloc: install libhwloc-dev and build again, or give what `lstopo "
              "--of xml` writes as a file");
}

}  // namespace jige::topology

#endif
