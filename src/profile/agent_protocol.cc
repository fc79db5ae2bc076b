#include "profile/agent_protocol.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "profile/agent_parse.h"

namespace jige::profile {
namespace {

constexpr std::string_view kMagic = "JGL1";

Json json_of(const HelloMessage& m) {
  return {{"type", "hello"},
          {"version", m.version},
          {"role", m.role == AgentRole::kControl ? "control" : "data"},
          {"token", m.token}};
}
Json json_of(const WelcomeMessage& m) {
  return {{"type", "welcome"},
          {"version", m.version},
          {"kernel", m.kernel},
          {"congestion", m.congestion}};
}
Json json_of(const ClockMessage& m) { return {{"type", "clock"}, {"now_ns", m.now_ns}}; }
Json json_of(const OpenMessage& m) {
  return {{"type", "open"},
          {"flow", m.flow},
          {"address", m.address},
          {"port", m.port},
          {"congestion", m.congestion},
          {"timeout_ms", m.timeout_ms}};
}
Json json_of(const OpenedMessage& m) { return {{"type", "opened"}, {"flow", m.flow}}; }
Json json_of(const RunMessage& m) {
  return {{"type", "run"},
          {"flows", m.flows},
          {"bytes", m.bytes},
          {"start_ns", m.start_ns},
          {"timeout_ms", m.timeout_ms}};
}
Json json_of(const RanMessage& m) {
  Json times = Json::array();
  for (const FlowTimes& t : m.times) times.push_back({t.begin_ns, t.end_ns});
  Json json{{"type", "ran"}, {"times", std::move(times)}};
  if (m.processors.all > 0) json["processors"] = {m.processors.idle, m.processors.all};
  return json;
}
Json json_of(const ListenMessage& m) { return {{"type", "listen"}, {"address", m.address}}; }
Json json_of(const ListeningMessage& m) { return {{"type", "listening"}, {"port", m.port}}; }
Json json_of(const CollectMessage& m) {
  Json rings = Json::array();
  for (const RingOrder& ring : m.rings) {
    rings.push_back({{"order", ring.order}, {"weight", ring.weight}});
  }
  Json json = {{"type", "collect"},          {"rank", m.rank},   {"rings", std::move(rings)},
               {"address", m.address},       {"port", m.port},   {"own", m.own},
               {"congestion", m.congestion}, {"bytes", m.bytes}, {"repeats", m.repeats},
               {"timeout_ms", m.timeout_ms}};
  if (!m.trees.empty()) json["trees"] = m.trees;
  if (!m.rounds.empty()) json["rounds"] = m.rounds;
  return json;
}
Json json_of(const CollectedMessage& m) {
  return {{"type", "collected"}, {"times_ns", m.times_ns}};
}
Json json_of(const RanksMessage& m) {
  return {{"type", "ranks"},
          {"library", m.library},
          {"hosts", m.hosts},
          {"kernels", m.kernels},
          {"processes", m.processes}};
}
Json json_of(const DataMessage& m) {
  return {{"type", "data"}, {"bytes", m.bytes}, {"check", m.check}};
}
Json json_of(const GotMessage&) { return {{"type", "got"}}; }
Json json_of(const ErrorMessage& m) {
  return {{"type", "error"}, {"code", code_name(m.code)}, {"message", m.message}};
}

}  // namespace

std::string frame_of(const AgentMessage& message) {
  const std::string payload =
      dump_json(std::visit([](const auto& m) { return json_of(m); }, message));
  std::string frame(kMagic);
  for (int i = 0; i < 4; ++i) frame.push_back(static_cast<char>(payload.size() >> (8 * i) & 0xFF));
  return frame + payload;
}

Result<size_t> payload_size(std::span<const std::byte, kFrameHeadBytes> head) {
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(Code::kCorrupt, "what came does not begin like a message of a Jige agent");
  }
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i) size |= std::to_integer<size_t>(head[4 + i]) << (8 * i);
  if (size > kFramePayloadMax) {
    return fail(Code::kExhausted, "a message of {} bytes is too long, at most {}", size,
                kFramePayloadMax);
  }
  return size;
}

Result<AgentMessage> parse_message(std::string_view payload) {
  JIGE_TRY(const Json json, parse_json(payload, "agent message"));
  return message_of(json);
}

bool same_token(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  }
  // An empty token against a longer one differs in size.
  return difference == 0;
}

std::byte pattern_byte(uint64_t offset) {
  // Long period, no byte like its neighbours' shift: what is lost, doubled or moved shows.
  return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15u) >> 56);
}

}  // namespace jige::profile
