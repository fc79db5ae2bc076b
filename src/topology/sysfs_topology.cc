#include "topology/sysfs_topology.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "topology/machine_tree.h"

namespace jige::topology {
namespace {

namespace fs = std::filesystem;

constexpr size_t kAttributeBytesMax = 4096;

// The first line of a small file, empty where there is none.
std::string read_line(const fs::path& path) {
  const auto text = read_file(path.string(), kAttributeBytesMax);
  return text ? text->substr(0, text->find('\n')) : "";
}

double leading_number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "0000:17:00.0"
bool is_address(const std::string& name) {
  return name.size() >= 12 && name.find(':') != std::string::npos && name[name.size() - 2] == '.' &&
         !name.starts_with("pci");
}

// "0x030200" and "0x10de" as numbers; 0 where there is none.
uint32_t hexadecimal(const std::string& text) {
  uint32_t value = 0;
  if (text.starts_with("0x")) {
    std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  }
  return value;
}

std::optional<ComponentKind> kind_of(const fs::path& folder) {
  return pci_kind(hexadecimal(read_line(folder / "class")) >> 8,
                  hexadecimal(read_line(folder / "vendor")));
}

PciPort port_at(const fs::path& folder) {
  PciPort port{.address = folder.filename()};
  port.negotiated(leading_number(read_line(folder / "current_link_width")),
                  leading_number(read_line(folder / "current_link_speed")));
  return port;
}

std::vector<NumaNode> numa_nodes(const std::string& root) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int32_t number = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with("node")) continue;
    const auto [stop, error_code] = std::from_chars(name.data() + 4, end, number);
    if (error_code == std::errc() && stop == end) nodes.push_back({number});
  }
  return nodes;
}

std::vector<PciFunction> pci_functions(const std::string& root) {
  std::vector<PciFunction> functions;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/bus/pci/devices", error)) {
    const fs::path folder = fs::canonical(entry.path(), error);
    if (error) continue;
    const std::optional<ComponentKind> kind = kind_of(folder);
    if (!kind) continue;
    PciFunction function{.kind = *kind};
    fs::path at;
    for (const fs::path& part : folder) {
      at /= part;
      if (is_address(part)) function.path.push_back(port_at(at));
    }
    if (function.path.empty()) continue;
    const std::string numa = read_line(folder / "numa_node");
    std::from_chars(numa.data(), numa.data() + numa.size(), function.numa);
    functions.push_back(std::move(function));
  }
  return functions;
}

}  // namespace

Result<Description> sysfs_description(const std::string& root) {
  std::vector<NumaNode> nodes = numa_nodes(root);
  if (nodes.empty()) {
    return fail(Code::kUnsupported,
                "{}/devices/system/node: no NUMA nodes are listed; describe the machine in a file",
                root);
  }
  Description d = machine_description(std::move(nodes), pci_functions(root));
  d.name = "this machine";
  d.environment["rates"] = "PCIe width and speed as negotiated";
  if (root == "/sys") d.environment["kernel"] = read_line("/proc/sys/kernel/osrelease");
  return d;
}

Result<Topology> sysfs_topology(const std::string& root) {
  JIGE_TRY(Description description, sysfs_description(root));
  return Topology::create(std::move(description), root);
}

}  // namespace jige::topology
