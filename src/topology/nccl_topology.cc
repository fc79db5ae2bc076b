#include "topology/nccl_topology.h"

#include <charconv>

namespace jige::topology {
namespace {

class NcclReader {
 public:
  explicit NcclReader(std::string_view where) : where_(where) {}

  Result<Description> run(const XmlElement& system) {
    const std::string* version = system.attribute("version");
    if (system.name != "system" || !version || *version != "1") {
      return wrong(system, "a topology of NCCL starts with <system version=\"1\">");
    }
    d_.name = where_;
    std::vector<int32_t> bridges;
    for (const XmlElement& cpu : system.children) {
      if (cpu.name != "cpu") return wrong(cpu, "only <cpu> is expected here");
      JIGE_TRY(const int32_t numa, number(cpu, "numaid", 0, 4095));
      const int32_t bridge = d_.add({.name = fmt::format("bridge{}", numa),
                                     .kind = ComponentKind::kHostBridge,
                                     .numa = numa});
      const int32_t memory = d_.add(
          {.name = fmt::format("numa{}", numa), .kind = ComponentKind::kMemory, .numa = numa});
      d_.join({.from = bridge, .to = memory, .kind = LinkKind::kMemoryBus});
      for (const int32_t other : bridges) {
        d_.join({.from = other, .to = bridge, .kind = LinkKind::kSocket});
      }
      bridges.push_back(bridge);
      for (const XmlElement& child : cpu.children) {
        if (child.name == "pci") JIGE_DO(add_pci(child, bridge, numa));
      }
    }
    return d_;
  }

 private:
  tl::unexpected<Error> wrong(const XmlElement& at, std::string_view why) const {
    return fail(Code::kCorrupt, "{}:{}: <{}>: {}", where_, at.line, at.name, why);
  }

  Result<int32_t> number(const XmlElement& at, std::string_view key, int32_t min,
                         int32_t max) const {
    const std::string* text = at.attribute(key);
    if (!text) return wrong(at, fmt::format("attribute {} is missing", key));
    int32_t value = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error == std::errc() && stop == end && value >= min && value <= max) return value;
    return wrong(at, fmt::format("attribute {} is \"{}\", must be {} to {}", key, *text, min, max));
  }

  // What a pci element is: its gpu, its nic's net, or neither.
  Status add_pci(const XmlElement& pci, int32_t above, int32_t numa) {
    const std::string* address = pci.attribute("busid");
    if (!address) return wrong(pci, "attribute busid is missing");
    Component component{.kind = ComponentKind::kSwitch, .numa = numa, .address = *address};
    component.name = "switch-" + *address;
    for (char& c : component.name) {
      if (c == ':') c = '.';
    }
    for (const XmlElement& child : pci.children) {
      if (child.name == "gpu") {
        for (const XmlElement& link : child.children) {
          if (link.name == "nvlink") {
            return fail(Code::kUnsupported, "{}:{}: NVLink is not planned for", where_, link.line);
          }
        }
        JIGE_TRY(component.index, number(child, "dev", 0, 65535));
        component.kind = ComponentKind::kDevice;
        component.name = fmt::format("gpu{}", component.index);
      } else if (child.name == "nic" && !child.children.empty()) {
        JIGE_TRY(component.index, number(child.children.front(), "dev", 0, 65535));
        component.kind = ComponentKind::kNic;
        component.name = fmt::format("nic{}", component.index);
      }
    }
    const int32_t added = d_.add(std::move(component));
    JIGE_TRY(Link link, link_of(pci));
    link.from = added;
    link.to = above;
    d_.join(std::move(link));
    for (const XmlElement& child : pci.children) {
      if (child.name == "pci") JIGE_DO(add_pci(child, added, numa));
    }
    return {};
  }

  // Width and speed where they are known; NCCL writes 0 or leaves them empty where they are not.
  Result<Link> link_of(const XmlElement& pci) const {
    Link link;
    const std::string* width = pci.attribute("link_width");
    const std::string* speed = pci.attribute("link_speed");
    if (!width || !speed || width->empty() || *width == "0") return link;
    JIGE_TRY(link.width, number(pci, "link_width", 1, 32));
    const auto [stop, error] =
        std::from_chars(speed->data(), speed->data() + speed->size(), link.gt_per_s);
    if (error != std::errc() || !(link.gt_per_s > 0 && link.gt_per_s <= 256)) {
      return wrong(pci, fmt::format("attribute link_speed is \"{}\"", *speed));
    }
    link.gb_per_s = link.back_gb_per_s = pcie_gb_per_s(link.width, link.gt_per_s);
    return link;
  }

  std::string_view where_;
  Description d_;
};

}  // namespace

Result<Description> description_from_nccl(const XmlElement& system, std::string_view where) {
  return NcclReader(where).run(system);
}

}  // namespace jige::topology
