#include "profile/agent_parse.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "comm/ring_plan.h"

namespace jige::profile {
namespace {

constexpr std::string_view kWhere = "agent message";
constexpr size_t kTextMax = 4096;
constexpr Code kCodes[] = {Code::kInternal, Code::kInvalidArgument, Code::kNotFound,
                           Code::kCorrupt,  Code::kUnsupported,     Code::kExhausted,
                           Code::kIo,       Code::kUnavailable,     Code::kCancelled};

Result<int64_t> limited(const Json& json, std::string_view field, int64_t min, int64_t max) {
  JIGE_TRY(const int64_t value, get_int(json, field, kWhere));
  if (value < min || value > max) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}, must be {} to {}", kWhere, field,
                value, min, max);
  }
  return value;
}

Result<std::string> limited_text(const Json& json, std::string_view field) {
  JIGE_TRY(std::string text, get_string_or(json, field, "", kWhere));
  if (text.size() > kTextMax) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" has {} bytes, at most {}", kWhere, field,
                text.size(), kTextMax);
  }
  return text;
}

Result<const Json*> list_of(const Json& json, std::string_view field) {
  const auto list = json.find(field);
  if (list == json.end() || !list->is_array() || list->size() > kFlowsMax) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" must be a list of at most {}", kWhere,
                field, kFlowsMax);
  }
  return &*list;
}

Result<std::vector<std::string>> parse_names(const Json& json, std::string_view field) {
  JIGE_TRY(const Json* list, list_of(json, field));
  std::vector<std::string> names;
  for (const Json& name : *list) {
    if (!name.is_string()) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" must hold names", kWhere, field);
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

using Parsed = Result<AgentMessage>;

Parsed parse_hello(const Json& json) {
  HelloMessage m;
  JIGE_TRY(m.version, limited(json, "version", 0, INT32_MAX));
  JIGE_TRY(const std::string role, limited_text(json, "role"));
  if (role != "control" && role != "data") {
    return fail(Code::kInvalidArgument, "{}: field \"role\" is \"{}\", must be control or data",
                kWhere, role);
  }
  m.role = role == "control" ? AgentRole::kControl : AgentRole::kData;
  JIGE_TRY(m.token, limited_text(json, "token"));
  return m;
}

Parsed parse_welcome(const Json& json) {
  WelcomeMessage m;
  JIGE_TRY(m.version, limited(json, "version", 0, INT32_MAX));
  JIGE_TRY(m.kernel, limited_text(json, "kernel"));
  JIGE_TRY(m.congestion, parse_names(json, "congestion"));
  return m;
}

Parsed parse_clock(const Json& json) {
  // A question has none.
  if (!json.contains("now_ns")) return ClockMessage{};
  JIGE_TRY(const int64_t now, limited(json, "now_ns", -kClockNsMax, kClockNsMax));
  return ClockMessage{now};
}

Parsed parse_open(const Json& json) {
  OpenMessage m;
  JIGE_TRY(m.flow, limited(json, "flow", 0, kFlowsMax - 1));
  JIGE_TRY(m.address, limited_text(json, "address"));
  JIGE_TRY(m.port, limited(json, "port", 1, 65535));
  JIGE_TRY(m.congestion, limited_text(json, "congestion"));
  JIGE_TRY(m.timeout_ms, limited(json, "timeout_ms", 1, kTimeoutMsMax));
  return m;
}

Parsed parse_opened(const Json& json) {
  JIGE_TRY(const int64_t flow, limited(json, "flow", 0, kFlowsMax - 1));
  return OpenedMessage{flow};
}

// Whole numbers from 0 up to `max`, each once.
Result<std::vector<int64_t>> parse_list(const Json& list, std::string_view field, int64_t max) {
  std::vector<int64_t> numbers;
  for (const Json& item : list) {
    const int64_t number = item.is_number_integer() ? item.get<int64_t>() : -1;
    if (number < 0 || number > max || std::ranges::count(numbers, number) > 0) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" must hold numbers up to {}, each once",
                  kWhere, field, max);
    }
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<int64_t>> parse_numbers(const Json& json, std::string_view field, int64_t max) {
  JIGE_TRY(const Json* list, list_of(json, field));
  return parse_list(*list, field, max);
}

Parsed parse_run(const Json& json) {
  RunMessage m;
  JIGE_TRY(m.flows, parse_numbers(json, "flows", kFlowsMax - 1));
  JIGE_TRY(const Json* sizes, list_of(json, "bytes"));
  for (const Json& item : *sizes) {
    const int64_t bytes = item.is_number_integer() ? item.get<int64_t>() : 0;
    if (bytes < 1 || bytes > kTransferBytesMax) {
      return fail(Code::kInvalidArgument, "{}: \"bytes\" must hold numbers from 1 to {}", kWhere,
                  kTransferBytesMax);
    }
    m.bytes.push_back(bytes);
  }
  if (m.bytes.size() != m.flows.size()) {
    return fail(Code::kInvalidArgument, "{}: {} sizes for {} flows", kWhere, m.bytes.size(),
                m.flows.size());
  }
  JIGE_TRY(m.start_ns, limited(json, "start_ns", -2 * kClockNsMax, 2 * kClockNsMax));
  JIGE_TRY(m.timeout_ms, limited(json, "timeout_ms", 1, kTimeoutMsMax));
  return m;
}

Parsed parse_ran(const Json& json) {
  RanMessage m;
  JIGE_TRY(const Json* times, list_of(json, "times"));
  for (const Json& pair : *times) {
    const auto is_time = [](const Json& time) {
      return time.is_number_integer() &&
             std::fabs(time.get<double>()) <= static_cast<double>(kClockNsMax);
    };
    if (!pair.is_array() || pair.size() != 2 || !is_time(pair[0]) || !is_time(pair[1])) {
      return fail(Code::kInvalidArgument, "{}: \"times\" must hold [begin, end]", kWhere);
    }
    m.times.push_back({pair[0].get<int64_t>(), pair[1].get<int64_t>()});
  }
  if (const auto ticks = json.find("processors"); ticks != json.end()) {
    const auto is_count = [](const Json& count) {
      return count.is_number_integer() && count.get<double>() >= 0 &&
             count.get<double>() <= static_cast<double>(kTicksMax);
    };
    if (!ticks->is_array() || ticks->size() != 2 || !is_count((*ticks)[0]) ||
        !is_count((*ticks)[1]) || (*ticks)[0] > (*ticks)[1]) {
      return fail(Code::kInvalidArgument, "{}: \"processors\" must be [idle, all]", kWhere);
    }
    m.processors = {(*ticks)[0].get<int64_t>(), (*ticks)[1].get<int64_t>()};
  }
  return m;
}

Parsed parse_listen(const Json& json) {
  ListenMessage m;
  JIGE_TRY(m.address, limited_text(json, "address"));
  return m;
}

Parsed parse_listening(const Json& json) {
  JIGE_TRY(const int64_t port, limited(json, "port", 1, 65535));
  return ListeningMessage{port};
}

Result<RingOrder> parse_order(const Json& json) {
  RingOrder ring;
  JIGE_TRY(ring.order, parse_numbers(json, "order", kFlowsMax - 1));
  if (ring.order.empty() ||
      std::ranges::max(ring.order) >= static_cast<int64_t>(ring.order.size())) {
    return fail(Code::kInvalidArgument, "{}: \"order\" must hold every rank once", kWhere);
  }
  JIGE_TRY(ring.weight, get_number_or(json, "weight", 1, kWhere));
  if (!(ring.weight > 0) || !std::isfinite(ring.weight)) {
    return fail(Code::kInvalidArgument, "{}: \"weight\" must be above 0", kWhere);
  }
  return ring;
}

// Trees and rounds, which name every rank once.
Status parse_paths(const Json& json, int64_t ranks, CollectMessage& m) {
  const auto whole = [&](const std::vector<int64_t>& list, std::string_view field) -> Status {
    if (static_cast<int64_t>(list.size()) == ranks) return {};
    return fail(Code::kInvalidArgument, "{}: \"{}\" must hold every rank once", kWhere, field);
  };
  if (json.contains("trees")) {
    JIGE_TRY(m.trees, parse_numbers(json, "trees", ranks - 1));
    JIGE_DO(whole(m.trees, "trees"));
  }
  if (!json.contains("rounds")) return {};
  JIGE_TRY(const Json* rounds, list_of(json, "rounds"));
  for (const Json& item : *rounds) {
    if (!item.is_array() || static_cast<int64_t>(item.size()) != ranks) return whole({}, "rounds");
    JIGE_TRY(std::vector<int64_t> round, parse_list(item, "rounds", ranks - 1));
    m.rounds.push_back(std::move(round));
  }
  return {};
}

Parsed parse_collect(const Json& json) {
  CollectMessage m;
  JIGE_TRY(const Json* rings, list_of(json, "rings"));
  for (const Json& item : *rings) {
    JIGE_TRY(RingOrder ring, parse_order(item));
    m.rings.push_back(std::move(ring));
  }
  const auto unlike = [&](const RingOrder& ring) {
    return ring.order.size() != m.rings[0].order.size();
  };
  if (m.rings.empty() || m.rings.size() > comm::kRingsMax || std::ranges::any_of(m.rings, unlike)) {
    return fail(Code::kInvalidArgument, "{}: \"rings\" must hold 1 to {} rings of the same ranks",
                kWhere, comm::kRingsMax);
  }
  const auto ranks = static_cast<int64_t>(m.rings[0].order.size());
  JIGE_DO(parse_paths(json, ranks, m));
  JIGE_TRY(m.rank, limited(json, "rank", 0, ranks - 1));
  JIGE_TRY(m.address, limited_text(json, "address"));
  JIGE_TRY(m.port, limited(json, "port", 1, 65535));
  JIGE_TRY(m.own, limited_text(json, "own"));
  JIGE_TRY(m.congestion, limited_text(json, "congestion"));
  JIGE_TRY(m.bytes, limited(json, "bytes", 1, kCollectiveBytesMax));
  JIGE_TRY(m.repeats, limited(json, "repeats", 1, kRepeatsMax));
  JIGE_TRY(m.timeout_ms, limited(json, "timeout_ms", 1, kTimeoutMsMax));
  return m;
}

Parsed parse_collected(const Json& json) {
  CollectedMessage m;
  JIGE_TRY(const Json* list, list_of(json, "times_ns"));
  for (const Json& time : *list) {
    if (!time.is_number_integer()) {
      return fail(Code::kInvalidArgument, "{}: \"times_ns\" must hold nanoseconds", kWhere);
    }
    m.times_ns.push_back(time.get<int64_t>());
  }
  return m;
}

Parsed parse_ranks(const Json& json) {
  RanksMessage m;
  JIGE_TRY(m.library, limited_text(json, "library"));
  JIGE_TRY(m.hosts, parse_names(json, "hosts"));
  JIGE_TRY(m.kernels, parse_names(json, "kernels"));
  JIGE_TRY(const Json* processes, list_of(json, "processes"));
  for (const Json& id : *processes) {
    if (!id.is_number_integer()) {
      return fail(Code::kInvalidArgument, "{}: \"processes\" must hold numbers", kWhere);
    }
    m.processes.push_back(id.get<int64_t>());
  }
  if (m.kernels.size() != m.hosts.size() || m.processes.size() != m.hosts.size()) {
    return fail(Code::kInvalidArgument, "{}: \"ranks\" must tell the same of each", kWhere);
  }
  return m;
}

Parsed parse_data(const Json& json) {
  DataMessage m;
  JIGE_TRY(m.bytes, limited(json, "bytes", 1, kTransferBytesMax));
  JIGE_TRY(m.check, get_bool_or(json, "check", false, kWhere));
  return m;
}

Parsed parse_got(const Json&) { return GotMessage{}; }

Parsed parse_error(const Json& json) {
  JIGE_TRY(const std::string code, limited_text(json, "code"));
  ErrorMessage m;
  for (const Code known : kCodes) {
    if (code_name(known) == code) m.code = known;
  }
  JIGE_TRY(m.message, limited_text(json, "message"));
  return m;
}

struct MessageType {
  std::string_view name;
  Parsed (*parse)(const Json&);
};
constexpr MessageType kTypes[] = {
    {"hello", parse_hello},     {"welcome", parse_welcome},     {"clock", parse_clock},
    {"open", parse_open},       {"opened", parse_opened},       {"run", parse_run},
    {"ran", parse_ran},         {"listen", parse_listen},       {"listening", parse_listening},
    {"collect", parse_collect}, {"collected", parse_collected}, {"data", parse_data},
    {"got", parse_got},         {"error", parse_error},         {"ranks", parse_ranks},
};

}  // namespace

Result<AgentMessage> message_of(const Json& json) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", kWhere);
  JIGE_TRY(const std::string type, get_string(json, "type", kWhere));
  for (const MessageType& known : kTypes) {
    if (known.name == type) return known.parse(json);
  }
  return fail(Code::kUnsupported, "{}: unknown type \"{}\"", kWhere, type.substr(0, 64));
}

}  // namespace jige::profile
