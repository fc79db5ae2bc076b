#include "topology/topology_svg.h"

#include <algorithm>
#include <cmath>

#include "base/xml_text.h"
#include "topology/topology_text.h"

namespace jige::topology {
namespace {

constexpr double kMargin = 24;
constexpr double kHead = 60;
constexpr double kBoxWidth = 92;
constexpr double kBoxHeight = 34;
constexpr double kColumn = 104;
constexpr double kRow = 92;

constexpr std::string_view kFill[kComponentKindCount] = {
    "#c9e3c3", "#f6e3b4", "#c9e3c3", "#d9d3ee", "#e4e4e4", "#cfe0f3", "#f5cfc0", "#cfe0f3"};
constexpr std::string_view kRingColors[] = {"#c0392b", "#2471a3", "#1e8449", "#b7950b"};

struct Point {
  double x = 0, y = 0;
};

class Picture {
 public:
  Picture(const Topology& t, const SvgOptions& options)
      : t_(t), options_(options), forest_(spanning_forest(t)), places_(t.components().size()) {
    place();
  }

  std::string draw() const {
    std::string body;
    for (size_t l = 0; l < t_.links().size(); ++l) body += draw_link(l);
    for (size_t i = 0; i < options_.rings.size(); ++i) body += draw_ring(i);
    for (size_t c = 0; c < places_.size(); ++c) body += draw_component(c);
    const std::string& title = options_.title.empty() ? t_.name() : options_.title;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" "
        "markerHeight=\"6\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#333333\"/>"
        "</marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        "<text x=\"{2}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{3}</text>\n"
        "<text x=\"{2}\" y=\"42\" fill=\"#555555\">{4}</text>\n{5}</svg>\n",
        width_, height_, kMargin, xml_text(title), xml_text(options_.subtitle), body);
  }

 private:
  // Leaves get columns from left to right, a parent stands over the middle of its children.
  void place() {
    std::vector<std::vector<size_t>> children(places_.size());
    double column = 0;
    int32_t deepest = 0;
    for (auto it = forest_.order.rbegin(); it != forest_.order.rend(); ++it) {
      const auto at = static_cast<size_t>(*it);
      const int32_t link = forest_.parent_link[at];
      if (link < 0) continue;
      const Link& l = t_.links()[static_cast<size_t>(link)];
      children[static_cast<size_t>(l.from == *it ? l.to : l.from)].push_back(at);
    }
    for (const int32_t component : forest_.order) {
      const auto at = static_cast<size_t>(component);
      deepest = std::max(deepest, forest_.depth[at]);
      places_[at].y = kHead + kBoxHeight + kRow * forest_.depth[at];
      if (children[at].empty()) places_[at].x = kMargin + kBoxWidth / 2 + kColumn * column++;
    }
    for (auto it = forest_.order.rbegin(); it != forest_.order.rend(); ++it) {
      const auto at = static_cast<size_t>(*it);
      if (children[at].empty()) continue;
      const auto [low, high] =
          std::ranges::minmax(children[at], {}, [&](size_t child) { return places_[child].x; });
      places_[at].x = (places_[low].x + places_[high].x) / 2;
    }
    width_ = std::max(360.0, 2 * kMargin + kBoxWidth + kColumn * (column - 1));
    height_ = kHead + 2 * kBoxHeight + kRow * deepest + kMargin;
  }

  std::string draw_link(size_t index) const {
    const Link& link = t_.links()[index];
    const Point a = places_[static_cast<size_t>(link.from)];
    const Point b = places_[static_cast<size_t>(link.to)];
    const bool level = a.y == b.y;
    const double bend = level ? std::min(a.y, b.y) - 44 - 6 * static_cast<double>(index % 3) : 0;
    const double width =
        link.gb_per_s == kUnlimited ? 1 : 1 + 1.2 * std::log2(1 + std::min(link.gb_per_s, 1e3) / 4);
    const std::string path = level
                                 ? fmt::format("M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}", a.x,
                                               a.y, (a.x + b.x) / 2, bend, b.x, b.y)
                                 : fmt::format("M{:.1f},{:.1f} L{:.1f},{:.1f}", a.x, a.y, b.x, b.y);
    std::string text = fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\"><title>{}: {}, "
        "{}</title></path>\n",
        path,
        link.kind == LinkKind::kNvlink                                    ? "#5aa02c"
        : link.kind == LinkKind::kSocket || link.kind == LinkKind::kTrunk ? "#a569bd"
                                                                          : "#999999",
        width, xml_text(link.name), link_kind_name(link.kind), describe_rate(link));
    if (link.gb_per_s == kUnlimited) return text;
    // Near the lower end, where the links of a switch are apart.
    const Point lower = a.y > b.y ? a : b, upper = a.y > b.y ? b : a;
    const Point label =
        level ? Point{(a.x + b.x) / 2, (a.y + bend) / 2}
              : Point{lower.x + 0.3 * (upper.x - lower.x), lower.y + 0.3 * (upper.y - lower.y)};
    return text + fmt::format(
                      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"9\" fill=\"#555555\">{}"
                      "</text>\n",
                      label.x + 4, label.y, describe_rate(link));
  }

  // Names of ports are long; what does not fit into a box is written smaller.
  static double name_size(const std::string& name) {
    constexpr double kUsual = 11, kWidthPerSize = 0.6;
    return std::min(kUsual, kBoxWidth / (kWidthPerSize * static_cast<double>(name.size())));
  }

  std::string draw_component(size_t index) const {
    const Component& c = t_.components()[index];
    const Point p = places_[index];
    return fmt::format(
        "<g><title>{0}: {1}</title><rect x=\"{2:.1f}\" y=\"{3:.1f}\" width=\"{4}\" height=\"{5}\" "
        "rx=\"4\" fill=\"{6}\" stroke=\"#666666\"/><text x=\"{7:.1f}\" y=\"{8:.1f}\" "
        "text-anchor=\"middle\" font-size=\"{11:.3g}\">{0}</text><text x=\"{7:.1f}\" y=\"{9:.1f}\" "
        "font-size=\"9\" "
        "fill=\"#555555\" text-anchor=\"middle\">{10}</text></g>\n",
        xml_text(c.name), xml_text(describe(c)), p.x - kBoxWidth / 2, p.y - kBoxHeight / 2,
        kBoxWidth, kBoxHeight, kFill[static_cast<size_t>(c.kind)], p.x, p.y - 2, p.y + 11,
        c.gb_per_s == kUnlimited ? "" : fmt::format("{:.4g} GB/s", c.gb_per_s), name_size(c.name));
  }

  std::string draw_ring(size_t index) const {
    const std::vector<int32_t>& ring = options_.rings[index];
    std::string text;
    for (size_t i = 0; i < ring.size(); ++i) {
      const Point a = places_[static_cast<size_t>(ring[i])];
      const Point b = places_[static_cast<size_t>(ring[(i + 1) % ring.size()])];
      // Below the boxes, the farther the lower, so that arrows do not lie on one another.
      const double drop = 18 + 0.12 * std::fabs(a.x - b.x) + (a.x < b.x ? 0 : 9);
      text += fmt::format(
          "<path d=\"M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"none\" stroke=\"{}\" "
          "stroke-width=\"1.6\" marker-end=\"url(#arrow)\"/>\n",
          a.x, a.y + kBoxHeight / 2, (a.x + b.x) / 2, std::max(a.y, b.y) + kBoxHeight / 2 + drop,
          b.x, b.y + kBoxHeight / 2, kRingColors[index % std::size(kRingColors)]);
    }
    return text;
  }

  const Topology& t_;
  const SvgOptions& options_;
  Forest forest_;
  std::vector<Point> places_;
  double width_ = 0, height_ = 0;
};

}  // namespace

std::string topology_svg(const Topology& topology, const SvgOptions& options) {
  return Picture(topology, options).draw();
}

}  // namespace jige::topology
