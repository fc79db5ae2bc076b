#include "topology/hwloc_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "topology/machine_tree.h"

namespace jige::topology {
namespace {

constexpr int32_t kNodeMax = 4095;
constexpr double kGbPerSMax = 1e6;  // more is no rate of a machine

bool is_type(const XmlElement& element, std::string_view type) {
  const std::string* own = element.attribute("type");
  return element.name == "object" && own && *own == type;
}

template <typename Number>
std::optional<Number> whole_number(std::string_view text, int base = 10) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

class HwlocReader {
 public:
  explicit HwlocReader(std::string_view where) : where_(where) {}

  Result<Description> run(const XmlElement& root) {
    JIGE_DO(find_nodes(root));
    if (nodes_.empty()) {
      return fail(Code::kUnsupported,
                  "{}: lists no NUMA nodes; describe the machine in a file of jige's own", where_);
    }
    JIGE_DO(read_memory_rates(root));
    Place top;
    JIGE_DO(walk(root, top));
    Description d = machine_description(nodes_, std::move(functions_));
    d.name = where_;
    d.environment["rates"] = memory_rates_ ? "PCIe as negotiated, memory as the firmware states it"
                                           : "PCIe as negotiated";
    if (!kernel_.empty()) d.environment["kernel"] = kernel_;
    return d;
  }

 private:
  // Where an element is: the NUMA node of what is above it, and the ports on the way.
  struct Place {
    int32_t numa = -1;
    std::vector<PciPort> path;
  };

  tl::unexpected<Error> wrong(const XmlElement& at, std::string_view why) const {
    return fail(Code::kCorrupt, "{}:{}: <{}>: {}", where_, at.line, at.name, why);
  }
  tl::unexpected<Error> wrong(const XmlElement& at, std::string_view key,
                              std::string_view must) const {
    const std::string* value = at.attribute(key);
    if (!value) return wrong(at, fmt::format("attribute {} is missing", key));
    return wrong(at, fmt::format("attribute {} is \"{}\", must be {}", key, *value, must));
  }

  Status find_nodes(const XmlElement& at) {
    for (const XmlElement& child : at.children) {
      if (is_type(child, "NUMANode")) JIGE_DO(add_node(child));
      JIGE_DO(find_nodes(child));
    }
    return {};
  }

  Status add_node(const XmlElement& element) {
    const std::string* text = element.attribute("os_index");
    const auto number = text ? whole_number<int32_t>(*text) : std::nullopt;
    if (!number || *number < 0 || *number > kNodeMax) {
      return wrong(element, "os_index", fmt::format("0 to {}", kNodeMax));
    }
    const auto same = [&](const NumaNode& node) { return node.number == *number; };
    if (std::ranges::any_of(nodes_, same)) {
      return wrong(element, fmt::format("there is a second NUMA node {}", *number));
    }
    if (const std::string* id = element.attribute("gp_index")) node_of_[*id] = nodes_.size();
    nodes_.push_back({*number});
    return {};
  }

  // Bandwidths in MiB/s, one for each set of processors that reads; the fastest is the memory's.
  Status read_memory_rates(const XmlElement& root) {
    for (const XmlElement& list : root.children) {
      const std::string* name = list.attribute("name");
      if (list.name != "memattr" || !name || *name != "Bandwidth") continue;
      for (const XmlElement& entry : list.children) {
        const std::string* id = entry.attribute("target_obj_gp_index");
        const auto node = id ? node_of_.find(*id) : node_of_.end();
        if (node == node_of_.end()) continue;
        const std::string* text = entry.attribute("value");
        const auto mib_per_s = text ? whole_number<uint64_t>(*text) : std::nullopt;
        const double rate = mib_per_s ? static_cast<double>(*mib_per_s) * 1048576 / 1e9 : 0;
        if (!mib_per_s || rate > kGbPerSMax) return wrong(entry, "value", "a bandwidth in MiB/s");
        if (rate <= 0) continue;
        double& own = nodes_[node->second].gb_per_s;
        own = own == kUnlimited ? rate : std::max(own, rate);
        memory_rates_ = true;
      }
    }
    return {};
  }

  // The first of our nodes in "0x00000001,0x80000000" (the last word counts from 0), where
  // "0xf...f" is every higher one; -1: none.
  Result<int32_t> first_node(const XmlElement& element, std::string_view set) const {
    std::vector<uint32_t> words;  // the lowest first
    std::optional<size_t> all_from;
    for (std::string_view rest = set; !rest.empty();) {
      const size_t comma = rest.rfind(',');
      std::string_view word = rest.substr(comma == std::string_view::npos ? 0 : comma + 1);
      rest = rest.substr(0, comma == std::string_view::npos ? 0 : comma);
      if (word.starts_with("0x")) word.remove_prefix(2);
      const auto bits = whole_number<uint32_t>(word, 16);
      if (word == "f...f" && rest.empty()) {
        all_from = words.size() * 32;
      } else if (!bits || words.size() > kNodeMax / 32) {
        return wrong(element, "nodeset", "words of 32 bits in hexadecimal");
      } else {
        words.push_back(*bits);
      }
    }
    int32_t first = -1;
    for (const NumaNode& node : nodes_) {
      const auto n = static_cast<size_t>(node.number);
      const bool in =
          n / 32 < words.size() ? (words[n / 32] >> n % 32 & 1) != 0 : all_from && n >= *all_from;
      if (in && (first < 0 || node.number < first)) first = node.number;
    }
    return first;
  }

  Status walk(const XmlElement& at, const Place& place) {
    for (const XmlElement& child : at.children) {
      if (child.name == "info") note(child);
      if (child.name != "object") continue;
      Place here = place;
      if (is_type(child, "PCIDev")) {
        JIGE_DO(add_function(child, std::move(here)));
        continue;
      }
      const std::string* bridge = child.attribute("bridge_type");
      if (is_type(child, "Bridge") && bridge && bridge->starts_with("1-")) {
        JIGE_TRY(PciPort port, port_of(child));
        here.path.push_back(std::move(port));
      } else if (const std::string* set = child.attribute("nodeset")) {
        JIGE_TRY(const int32_t node, first_node(child, *set));
        if (node >= 0) here.numa = node;
      }
      JIGE_DO(walk(child, here));
    }
    return {};
  }

  void note(const XmlElement& info) {
    const std::string* name = info.attribute("name");
    const std::string* value = info.attribute("value");
    if (name && value && *name == "OSRelease") kernel_ = *value;
  }

  Status add_function(const XmlElement& element, Place place) {
    // "0302 [10de:2684] [1458:40bf] a1": class, vendor and device, the same of the board, revision.
    const std::string* type = element.attribute("pci_type");
    const std::string_view text = type ? std::string_view(*type) : std::string_view();
    const auto code = whole_number<uint32_t>(text.substr(0, std::min<size_t>(4, text.size())), 16);
    const bool long_enough = text.size() >= 10 && text.substr(4, 2) == " [";
    const auto vendor = long_enough ? whole_number<uint32_t>(text.substr(6, 4), 16) : std::nullopt;
    if (!code || !vendor) return wrong(element, "pci_type", "such as 0302 [10de:2684]");
    const std::optional<ComponentKind> kind = pci_kind(*code, *vendor);
    if (!kind) return {};
    JIGE_TRY(PciPort port, port_of(element));
    place.path.push_back(std::move(port));
    functions_.push_back({*kind, place.numa, std::move(place.path)});
    return {};
  }

  Result<PciPort> port_of(const XmlElement& element) const {
    const std::string* address = element.attribute("pci_busid");
    if (!address || address->empty()) return wrong(element, "pci_busid", "an address");
    PciPort port{.address = *address};
    const std::string* speed = element.attribute("pci_link_speed");
    if (!speed) return port;
    double rate = 0;
    const char* const end = speed->data() + speed->size();
    const auto [stop, error] = std::from_chars(speed->data(), end, rate);
    if (error != std::errc() || stop != end || !(rate >= 0 && rate <= kGbPerSMax)) {
      return wrong(element, "pci_link_speed", "GB/s");
    }
    if (rate > 0) port.gb_per_s = rate;  // 0: hwloc could not tell
    return port;
  }

  std::string_view where_;
  std::vector<NumaNode> nodes_;
  std::map<std::string, size_t> node_of_;  // by hwloc's gp_index
  std::vector<PciFunction> functions_;
  bool memory_rates_ = false;
  std::string kernel_;
};

}  // namespace

Result<Description> description_from_hwloc(const XmlElement& topology, std::string_view where) {
  return HwlocReader(where).run(topology);
}

}  // namespace jige::topology
