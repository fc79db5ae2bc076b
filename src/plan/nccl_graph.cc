#include "plan/nccl_graph.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "topology/xml.h"

namespace jige::plan {

using topology::XmlElement;

namespace {

// What the parsers of the releases hold.
size_t children_max(NcclVersion version) {
  if (version < NcclVersion{2, 21}) return 32;
  return version < NcclVersion{2, 30} ? 128 : 640;
}
size_t channels_max(NcclVersion version) { return version < NcclVersion{2, 24} ? 32 : 64; }

constexpr std::string_view kPathTypes[] = {"LOC", "NVL", "NVB", "P2C", "PIX",
                                           "PXB", "PXN", "PHB", "SYS"};

tl::unexpected<Error> wrong(const XmlElement& at, std::string_view where, std::string_view why) {
  return fail(Code::kCorrupt, "{}:{}: <{}>: {}", where, at.line, at.name, why);
}

Result<double> number(const XmlElement& at, std::string_view key, double fallback,
                      std::string_view where) {
  const std::string* text = at.attribute(key);
  if (!text) {
    if (!std::isnan(fallback)) return fallback;
    return wrong(at, where, fmt::format("attribute {} is missing", key));
  }
  double value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error == std::errc() && stop == end && std::isfinite(value)) return value;
  return wrong(at, where, fmt::format("attribute {} is \"{}\", no number", key, *text));
}

Result<int32_t> integer(const XmlElement& at, std::string_view key, double fallback,
                        std::string_view where) {
  JIGE_TRY(const double value, number(at, key, fallback, where));
  if (value == std::floor(value) && value >= 0 && value <= 1e6) return static_cast<int32_t>(value);
  return wrong(at, where, fmt::format("attribute {} is {}, must be a small integer", key, value));
}

Result<int32_t> device(const XmlElement& at, std::string_view where, NcclVersion version) {
  const std::string* text = at.attribute("dev");
  if (!text) return wrong(at, where, "attribute dev is missing");
  std::string_view digits = *text;
  const bool prefixed = digits.starts_with("0x");
  if (prefixed) digits.remove_prefix(2);
  const bool hexadecimal = prefixed || version >= NcclVersion{2, 21};
  // Up to 2.20 a leading zero means octal.
  const int base = hexadecimal ? 16 : digits.size() > 1 && digits[0] == '0' ? 8 : 10;
  int32_t value = 0;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc() && stop == digits.data() + digits.size() && value >= 0) return value;
  return wrong(at, where, fmt::format("attribute dev is \"{}\"", *text));
}

Result<NcclChannel> read_channel(const XmlElement& at, std::string_view where,
                                 NcclVersion version) {
  NcclChannel channel;
  for (size_t i = 0; i < at.children.size(); ++i) {
    const XmlElement& child = at.children[i];
    JIGE_TRY(const int32_t dev, device(child, where, version));
    if (child.name == "gpu") {
      channel.gpus.push_back(dev);
    } else if (child.name == "net" && (i == 0 || i + 1 == at.children.size())) {
      channel.nets.push_back(dev);
    } else {
      return wrong(child, where, "a channel holds GPUs, and nets at its ends");
    }
  }
  if (channel.gpus.empty()) return wrong(at, where, "has no GPU");
  return channel;
}

Result<std::string> path_type(const XmlElement& at, std::string_view key, std::string_view where) {
  const std::string* text = at.attribute(key);
  if (text && std::ranges::find(kPathTypes, *text) != std::end(kPathTypes)) return *text;
  return wrong(at, where, fmt::format("attribute {} is \"{}\"", key, text ? *text : ""));
}

Result<NcclGraph> read_graph(const XmlElement& at, std::string_view where, NcclVersion version) {
  constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
  if (at.name != "graph") return wrong(at, where, "only graphs are expected here");
  NcclGraph graph;
  JIGE_TRY(graph.id, integer(at, "id", kRequired, where));
  JIGE_TRY(graph.pattern, integer(at, "pattern", kRequired, where));
  JIGE_TRY(const int32_t cross, integer(at, "crossnic", kRequired, where));
  JIGE_TRY(const int32_t count, integer(at, "nchannels", kRequired, where));
  JIGE_TRY(graph.speed_intra, number(at, "speedintra", kRequired, where));
  JIGE_TRY(graph.speed_inter, number(at, "speedinter", kRequired, where));
  JIGE_TRY(graph.latency_inter, number(at, "latencyinter", 0, where));
  JIGE_TRY(graph.type_intra, path_type(at, "typeintra", where));
  JIGE_TRY(graph.type_inter, path_type(at, "typeinter", where));
  JIGE_TRY(const int32_t same, integer(at, "samechannels", kRequired, where));
  graph.cross_nic = cross != 0;
  graph.same_channels = same != 0;
  for (const XmlElement& child : at.children) {
    if (child.name != "channel") return wrong(child, where, "a graph holds channels");
    JIGE_TRY(NcclChannel channel, read_channel(child, where, version));
    graph.channels.push_back(std::move(channel));
  }
  if (static_cast<size_t>(count) != graph.channels.size()) {
    return wrong(at, where,
                 fmt::format("nchannels is {}, there are {}", count, graph.channels.size()));
  }
  return graph;
}

}  // namespace

Result<NcclVersion> parse_nccl_version(std::string_view text) {
  NcclVersion version;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, version.major);
  std::from_chars_result rest{dot, std::errc::invalid_argument};
  if (error == std::errc() && dot != end && *dot == '.') {
    rest = std::from_chars(dot + 1, end, version.minor);
  }
  if (rest.ec != std::errc() || (rest.ptr != end && *rest.ptr != '.')) {
    return fail(Code::kInvalidArgument, "\"{}\" is no version of NCCL such as 2.21", text);
  }
  if (version < NcclVersion{2, 18}) {
    return fail(Code::kUnsupported, "NCCL {}: graph files are written for 2.18 and later", text);
  }
  return version;
}

Result<std::string> write_nccl_graphs(const std::vector<NcclGraph>& graphs, NcclVersion version) {
  std::string text = "<graphs version=\"1\">\n";
  for (const NcclGraph& graph : graphs) {
    if (graph.channels.empty() || graph.channels.size() > channels_max(version)) {
      return fail(Code::kUnsupported, "NCCL {}.{} takes 1 to {} channels, the graph has {}",
                  version.major, version.minor, channels_max(version), graph.channels.size());
    }
    text += fmt::format(
        "  <graph id=\"{}\" pattern=\"{}\" crossnic=\"{}\" nchannels=\"{}\" speedintra=\"{:.4g}\" "
        "speedinter=\"{:.4g}\" latencyinter=\"{:.4g}\" typeintra=\"{}\" typeinter=\"{}\" "
        "samechannels=\"{}\">\n",
        graph.id, graph.pattern, graph.cross_nic ? 1 : 0, graph.channels.size(), graph.speed_intra,
        graph.speed_inter, graph.latency_inter, graph.type_intra, graph.type_inter,
        graph.same_channels ? 1 : 0);
    for (const NcclChannel& channel : graph.channels) {
      const size_t children = channel.gpus.size() + channel.nets.size();
      if (children > children_max(version)) {
        return fail(Code::kUnsupported, "NCCL {}.{} reads {} members of a channel, this has {}",
                    version.major, version.minor, children_max(version), children);
      }
      text += "    <channel>\n";
      const auto member = [&](std::string_view kind, int32_t dev) {
        text += fmt::format("      <{} dev=\"0x{:x}\"/>\n", kind, dev);
      };
      if (!channel.nets.empty()) member("net", channel.nets.front());
      for (const int32_t gpu : channel.gpus) member("gpu", gpu);
      if (!channel.nets.empty()) member("net", channel.nets.back());
      text += "    </channel>\n";
    }
    text += "  </graph>\n";
  }
  return text + "</graphs>\n";
}

Result<std::vector<NcclGraph>> parse_nccl_graphs(std::string_view text, std::string_view where,
                                                 NcclVersion version) {
  JIGE_TRY(const XmlElement root, topology::parse_xml(text, where));
  if (root.name != "graphs") return wrong(root, where, "a graph file starts with <graphs>");
  const std::string* format = root.attribute("version");
  if (!format || *format != "1") return wrong(root, where, "attribute version must be 1");
  std::vector<NcclGraph> graphs;
  for (const XmlElement& child : root.children) {
    JIGE_TRY(NcclGraph graph, read_graph(child, where, version));
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

}  // namespace jige::plan
