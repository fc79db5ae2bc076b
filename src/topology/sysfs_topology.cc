#include "topology/sysfs_topology.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"

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

struct PciFunction {
  std::string address;
  std::vector<fs::path> path;  // folders from the root port to the function itself
  ComponentKind kind;
  int32_t numa;
};

std::optional<ComponentKind> kind_of(const fs::path& folder) {
  const std::string type = read_line(folder / "class");
  const std::string vendor = read_line(folder / "vendor");
  const bool gpu_vendor = vendor == "0x10de" || vendor == "0x1002";
  if (gpu_vendor && (type.starts_with("0x0300") || type.starts_with("0x0302"))) {
    return ComponentKind::kDevice;
  }
  if (type.starts_with("0x0200") || type.starts_with("0x0207")) return ComponentKind::kNic;
  return std::nullopt;
}

std::vector<int32_t> numa_nodes(const std::string& root) {
  std::vector<int32_t> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int32_t number = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with("node") || name.size() == 4) continue;
    if (std::from_chars(name.data() + 4, end, number).ptr == end) nodes.push_back(number);
  }
  std::ranges::sort(nodes);
  return nodes;
}

std::vector<PciFunction> pci_functions(const std::string& root, const std::vector<int32_t>& nodes) {
  std::vector<PciFunction> functions;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/bus/pci/devices", error)) {
    const fs::path folder = fs::canonical(entry.path(), error);
    if (error) continue;
    const std::optional<ComponentKind> kind = kind_of(folder);
    if (!kind) continue;
    PciFunction function{entry.path().filename(), {}, *kind, nodes.front()};
    fs::path at;
    for (const fs::path& part : folder) {
      at /= part;
      if (is_address(part)) function.path.push_back(at);
    }
    const auto numa = static_cast<int32_t>(leading_number(read_line(folder / "numa_node")));
    if (std::ranges::find(nodes, numa) != nodes.end()) function.numa = numa;
    functions.push_back(std::move(function));
  }
  std::ranges::sort(functions, {}, &PciFunction::address);
  return functions;
}

class SysfsReader {
 public:
  explicit SysfsReader(const std::string& root) : root_(root), nodes_(numa_nodes(root)) {}

  Result<Description> run() {
    if (nodes_.empty()) {
      return fail(
          Code::kUnsupported,
          "{}/devices/system/node: no NUMA nodes are listed; describe the machine in a file",
          root_);
    }
    d_.name = "this machine";
    add_nodes();
    for (const PciFunction& function : pci_functions(root_, nodes_)) add(function);
    d_.environment["rates"] = "PCIe width and speed as negotiated";
    if (root_ == "/sys") d_.environment["kernel"] = read_line("/proc/sys/kernel/osrelease");
    return d_;
  }

 private:
  void add_nodes() {
    for (const int32_t n : nodes_) {
      bridges_[n] = d_.add(
          {.name = fmt::format("bridge{}", n), .kind = ComponentKind::kHostBridge, .numa = n});
      const int32_t memory =
          d_.add({.name = fmt::format("numa{}", n), .kind = ComponentKind::kMemory, .numa = n});
      d_.join({.from = bridges_[n], .to = memory, .kind = LinkKind::kMemoryBus});
    }
    for (size_t a = 0; a < nodes_.size(); ++a) {
      for (size_t b = a + 1; b < nodes_.size(); ++b) {
        d_.join(
            {.from = bridges_[nodes_[a]], .to = bridges_[nodes_[b]], .kind = LinkKind::kSocket});
      }
    }
  }

  // Ports behind the root port come in pairs, into a switch and out of it.
  void add(const PciFunction& function) {
    int32_t above = bridges_[function.numa];
    for (size_t i = 0; i + 1 < function.path.size(); ++i) {
      const bool root_port = i == 0;
      const bool into_switch = i % 2 == 1;
      if (!root_port && !into_switch) continue;
      above = port(function.path[i], above, root_port, function.numa);
    }
    int32_t& number = counts_[function.kind];
    const std::string_view prefix = function.kind == ComponentKind::kDevice ? "gpu" : "nic";
    const int32_t component = d_.add({.name = fmt::format("{}{}", prefix, number),
                                      .kind = function.kind,
                                      .numa = function.numa,
                                      .index = number,
                                      .address = function.address});
    ++number;
    join(component, above, function.path.back());
  }

  // The component of a port, made when it is first met.
  int32_t port(const fs::path& folder, int32_t above, bool root_port, int32_t numa) {
    const std::string address = folder.filename();
    if (const auto known = ports_.find(address); known != ports_.end()) return known->second;
    std::string name = (root_port ? "port-" : "switch-") + address;
    std::ranges::replace(name, ':', '.');
    const int32_t component =
        d_.add({.name = std::move(name),
                .kind = root_port ? ComponentKind::kRootPort : ComponentKind::kSwitch,
                .numa = numa,
                .address = address});
    if (root_port) {
      d_.join({.from = component, .to = above});
    } else {
      join(component, above, folder);
    }
    ports_[address] = component;
    return component;
  }

  // The link from a function upwards, with the rate it negotiated.
  void join(int32_t from, int32_t to, const fs::path& folder) {
    Link link{.from = from, .to = to};
    const double width = leading_number(read_line(folder / "current_link_width"));
    const double speed = leading_number(read_line(folder / "current_link_speed"));
    if (width >= 1 && width <= 32 && speed > 0 && speed <= 256) {
      link.width = static_cast<int32_t>(width);
      link.gt_per_s = speed;
      link.gb_per_s = link.back_gb_per_s = pcie_gb_per_s(link.width, speed);
    }
    d_.join(std::move(link));
  }

  const std::string& root_;
  std::vector<int32_t> nodes_;
  Description d_;
  std::map<int32_t, int32_t> bridges_;
  std::map<std::string, int32_t> ports_;
  std::map<ComponentKind, int32_t> counts_;
};

}  // namespace

Result<Description> sysfs_description(const std::string& root) { return SysfsReader(root).run(); }

Result<Topology> sysfs_topology(const std::string& root) {
  JIGE_TRY(Description description, sysfs_description(root));
  return Topology::create(std::move(description), root);
}

}  // namespace jige::topology
