#include "topology/nccl_topology.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "topology/nvlinks.h"

namespace jige::topology {
namespace {

constexpr int32_t kNvlinksMax = 1000;  // of a GPU to one other end

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
      JIGE_TRY(const int32_t told, number(cpu, "numaid", -1, 4095));
      const int32_t numa = std::max(told, 0);
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
    join_pending_nvlinks();
    return std::move(d_);
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
    const XmlElement* gpu = nullptr;
    for (const XmlElement& child : pci.children) {
      if (child.name == "gpu") {
        gpu = &child;
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
    if (gpu) JIGE_DO(note_nvlinks(*gpu, added, numa));
    for (const XmlElement& child : pci.children) {
      if (child.name == "pci") JIGE_DO(add_pci(child, added, numa));
    }
    return {};
  }

  // Their other ends may come later in the file.
  Status note_nvlinks(const XmlElement& gpu, int32_t device, int32_t numa) {
    for (const XmlElement& link : gpu.children) {
      if (link.name != "nvlink") continue;
      const std::string* target = link.attribute("target");
      const std::string* type = link.attribute("tclass");
      if (!target) return wrong(link, "attribute target is missing");
      if (!type) return wrong(link, "attribute tclass is missing");
      PendingNvlink pending{.device = device, .bridge = numa, .target = lower_ascii(*target)};
      if (type->starts_with("0x03")) {
        pending.end = PendingNvlink::End::kGpu;
      } else if (*type == "0x068001") {
        pending.end = PendingNvlink::End::kProcessor;
      } else if (!type->starts_with("0x0680")) {
        return wrong(link, fmt::format("attribute tclass is \"{}\", must be a GPU's (0x03…), a "
                                       "switch's (0x0680…) or 0x068001",
                                       *type));
      }
      JIGE_TRY(const int32_t count, number(link, "count", 1, kNvlinksMax));
      int32_t sm = 0;
      if (gpu.attribute("sm")) {
        JIGE_TRY(sm, number(gpu, "sm", 0, 1000));
      }
      pending.gb_per_s = count * nvlink_gb_per_s_of_sm(sm);
      nvlinks_.push_back(std::move(pending));
    }
    return {};
  }

  void join_pending_nvlinks() {
    NvlinkRates rates;
    for (const PendingNvlink& link : nvlinks_) {
      int32_t other = -1;
      if (link.end == PendingNvlink::End::kSwitch) other = nvswitch(d_);
      if (link.end == PendingNvlink::End::kProcessor) {
        other = d_.find(fmt::format("bridge{}", link.bridge));
      }
      for (size_t i = 0; link.end == PendingNvlink::End::kGpu && i < d_.components.size(); ++i) {
        const Component& c = d_.components[i];
        if (c.kind == ComponentKind::kDevice && lower_ascii(c.address) == link.target) {
          other = static_cast<int32_t>(i);
        }
      }
      if (other >= 0 && other != link.device) rates[{link.device, other}] += link.gb_per_s;
    }
    join_nvlinks(d_, rates);
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

  struct PendingNvlink {
    enum class End { kSwitch, kGpu, kProcessor };
    End end = End::kSwitch;
    int32_t device = -1;
    int32_t bridge = -1;  // of its NUMA node
    std::string target;   // an address
    double gb_per_s = 0;
  };

  std::string_view where_;
  Description d_;
  std::vector<PendingNvlink> nvlinks_;
};

}  // namespace

Result<Description> description_from_nccl(const XmlElement& system, std::string_view where) {
  return NcclReader(where).run(system);
}

}  // namespace jige::topology
