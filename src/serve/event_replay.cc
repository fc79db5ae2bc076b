#include "serve/event_replay.h"

#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "plan/serve_scheduler.h"
#include "plan/serve_settings.h"
#include "serve/event_log.h"

namespace jige::serve {
namespace {

// Within these no size can overflow.
constexpr int64_t kTokensMax = int64_t{1} << 20;
constexpr int64_t kForksMax = 255;
constexpr int64_t kBlocksMax = int64_t{1} << 22;
constexpr int64_t kStatesMax = int64_t{1} << 20;

Result<int64_t> get_ranged(const Json& line, std::string_view field, int64_t low, int64_t high,
                           std::string_view where) {
  JIGE_TRY(const int64_t value, get_int(line, field, where));
  if (value >= low && value <= high) return value;
  return fail(Code::kCorrupt, "{}: {} is {}; it must be in {}..{}", where, field, value, low, high);
}

Result<int32_t> as_int32(const Json& value, std::string_view where) {
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (number >= INT32_MIN && number <= INT32_MAX) return static_cast<int32_t>(number);
  }
  return fail(Code::kCorrupt, "{}: {} is no 32-bit number", where, dump_json(value));
}

// The array of a field; an empty one where there is none.
const Json& array_of(const Json& line, std::string_view field) {
  static const Json kNone = Json::array();
  const auto found = line.find(std::string(field));
  return found != line.end() && found->is_array() ? *found : kNone;
}

// [id, token, finished, …]
bool is_sampled_row(const Json& row, size_t size) {
  return row.is_array() && row.size() == size && row[0].is_number_integer() &&
         row[1].is_number_integer() && row[2].is_boolean();
}

Result<plan::ServeSchedulerOptions> options_of(const Json& line, std::string_view where) {
  plan::ServeSchedulerOptions options;
  JIGE_TRY(const std::string policy, get_string(line, "policy", where));
  if (const auto known = plan::find_policy(policy)) {
    options.policy = *known;
  } else {
    return fail(Code::kCorrupt, "{}: policy \"{}\" is unknown", where, policy);
  }
  JIGE_TRY(const bool optimistic, get_bool_or(line, "optimistic", false, where));
  if (optimistic) options.admission = plan::Admission::kOptimistic;
  const auto read = [&](std::string_view field, int64_t low, int64_t high,
                        int32_t& value) -> Status {
    JIGE_TRY(const int64_t number, get_ranged(line, field, low, high, where));
    value = static_cast<int32_t>(number);
    return {};
  };
  JIGE_DO(read("batch_requests_max", 1, INT32_MAX, options.batch_requests_max));
  JIGE_DO(read("batch_tokens_max", 1, INT32_MAX, options.batch_tokens_max));
  JIGE_DO(read("sample_rows_max", 1, INT32_MAX, options.sample_rows_max));
  JIGE_DO(read("batches_in_flight_max", 1, INT32_MAX, options.batches_in_flight_max));
  JIGE_DO(read("preemptions_max", 0, INT32_MAX, options.preemptions_max));
  JIGE_DO(read("block_count", 1, kBlocksMax, options.pool.block_count));
  JIGE_DO(read("block_tokens", 1, 1024, options.pool.block_tokens));
  if (line.contains("in_flight_requests_min")) {
    JIGE_DO(read("in_flight_requests_min", 1, INT32_MAX, options.in_flight_requests_min));
  }
  if (line.contains("whole_prompt_tokens")) {
    JIGE_DO(read("whole_prompt_tokens", 1, INT32_MAX, options.whole_prompt_tokens));
  }
  if (line.contains("state_count")) {
    JIGE_DO(read("state_count", 1, kStatesMax, options.state_count));
  }
  if (line.contains("kept_state_count")) {
    JIGE_DO(read("kept_state_count", 1, kStatesMax, options.kept_state_count));
    JIGE_DO(read("kept_margin", 0, kTokensMax, options.kept_margin));
  }
  if (options.policy == plan::ServePolicy::kRounds) {
    JIGE_DO(read("round_prompts", 1, INT32_MAX, options.round_prompts));
    JIGE_DO(read("round_steps", 1, INT32_MAX, options.round_steps));
  }
  JIGE_TRY(options.fair_share, get_bool_or(line, "fair_share", false, where));
  JIGE_TRY(options.shortest_first, get_bool_or(line, "shortest_first", false, where));
  JIGE_TRY(options.pool.prefix_cache, get_bool_or(line, "prefix_cache", true, where));
  return options;
}

class Replay {
 public:
  explicit Replay(const plan::ServeSchedulerOptions& options) : scheduler_(options) {}

  Status step(const Json& line, std::string_view where) {
    JIGE_TRY(const std::string event, get_string(line, "event", where));
    if (event == "arrive") return arrive(line, where);
    if (event == "draft") return draft(line, where);
    if (event == "batch") return batch(line, where);
    if (event == "complete") return complete(line, where);
    if (event == "lose") return lose(line, where);
    if (event == "lose_caches") return lose_caches(where);
    if (event == "cancel") return cancel(line, where);
    if (event == "discard") return discard(line, where);
    if (event == "change") return change(line, where);
    return fail(Code::kCorrupt, "{}: event \"{}\" is unknown", where, event);
  }

  ReplayCounts counts() const {
    ReplayCounts counts = counts_;
    counts.live_blocks = scheduler_.pool().live_count();
    return counts;
  }

 private:
  // What may still be forked off a request, and whether it has sampled.
  struct Known {
    int64_t forks_left = 0;
    bool sampled = false;
  };

  // An item of a batch that samples.
  struct Sampling {
    plan::RequestId request = 0;
    int32_t draft_count = 0;
  };

  Status arrive(const Json& line, std::string_view where) {
    plan::RequestSpec spec;
    JIGE_TRY(spec.id, get_int(line, "id", where));
    for (const Json& token : array_of(line, "prompt")) {
      JIGE_TRY(const int32_t id, as_int32(token, where));
      spec.prompt.push_back(id);
    }
    if (std::ssize(spec.prompt) > kTokensMax) {
      return fail(Code::kCorrupt, "{}: a prompt of {} tokens", where, spec.prompt.size());
    }
    JIGE_TRY(const int64_t new_tokens, get_ranged(line, "new_tokens", 1, kTokensMax, where));
    JIGE_TRY(const int64_t forks, get_ranged(line, "forks", 0, kForksMax, where));
    JIGE_TRY(const int64_t priority, get_ranged(line, "priority", INT32_MIN, INT32_MAX, where));
    JIGE_TRY(const int64_t tenant, get_int(line, "tenant", where));
    JIGE_TRY(const int64_t salt, get_int(line, "salt", where));
    JIGE_TRY(const int64_t cached_max, get_ranged(line, "cached_max", 0, INT32_MAX, where));
    JIGE_TRY(const int64_t adapter,
             get_ranged(line, "adapter", plan::kBaseAdapter, INT32_MAX, where));
    spec.max_new_tokens = static_cast<int32_t>(new_tokens);
    spec.cached_max = static_cast<int32_t>(cached_max);
    spec.adapter = static_cast<int32_t>(adapter);
    spec.fork_count = static_cast<int32_t>(forks);
    spec.priority = static_cast<int32_t>(priority);
    spec.tenant = static_cast<uint64_t>(tenant);
    spec.cache_salt = static_cast<uint64_t>(salt);
    JIGE_DO(read_whole_runs(line, spec, where));
    const plan::RequestId id = spec.id;
    // One that was refused then is refused now: that, too, is a function of the state.
    if (scheduler_.arrive(std::move(spec))) known_[id] = {.forks_left = forks};
    ++counts_.requests;
    return {};
  }

  static Status read_whole_runs(const Json& line, plan::RequestSpec& spec, std::string_view where) {
    int32_t least = 0;
    for (const Json& run : array_of(line, "whole_runs")) {
      plan::TokenRun one;
      if (run.is_array() && run.size() == 2) {
        JIGE_TRY(one.begin, as_int32(run[0], where));
        JIGE_TRY(one.end, as_int32(run[1], where));
      }
      if (one.begin < least || one.end <= one.begin || one.end > std::ssize(spec.prompt)) {
        return fail(Code::kCorrupt,
                    "{}: tokens {} to {} of a prompt of {} are no run behind token {}", where,
                    one.begin, one.end, spec.prompt.size(), least);
      }
      spec.whole_runs.push_back(one);
      least = one.end;
    }
    return {};
  }

  Status draft(const Json& line, std::string_view where) {
    JIGE_TRY(const int64_t id, get_int(line, "id", where));
    std::vector<int32_t> tokens;
    for (const Json& token : array_of(line, "tokens")) {
      JIGE_TRY(const int32_t number, as_int32(token, where));
      tokens.push_back(number);
    }
    JIGE_TRY(const int64_t certain, get_int_or(line, "certain", 0, where));
    if (certain < 0 || certain > std::ssize(tokens)) {
      return fail(Code::kCorrupt, "{}: {} of {} drafted tokens are certain", where, certain,
                  tokens.size());
    }
    scheduler_.draft(id, tokens, static_cast<int32_t>(certain));
    return {};
  }

  Status batch(const Json& line, std::string_view where) {
    const std::optional<plan::Batch> batch = scheduler_.next_batch();
    JIGE_DO(expect_same(line, batch_line(batch), where));
    if (!batch) return {};
    ++counts_.batches;
    counts_.preemptions += std::ssize(batch->preempted);
    std::vector<Sampling>& samples = in_flight_[batch->id];
    for (const plan::WorkItem& item : batch->items) {
      if (item.samples) samples.push_back({item.request, item.draft_count});
    }
    return {};
  }

  Result<std::vector<plan::SampledNext>> sampled_of(const Json& line,
                                                    const std::vector<Sampling>& expected,
                                                    std::string_view where) {
    const Json& rows = array_of(line, "sampled");
    if (rows.size() != expected.size()) {
      return fail(Code::kCorrupt, "{}: {} tokens for {} requests", where, rows.size(),
                  expected.size());
    }
    std::vector<plan::SampledNext> sampled;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json& row = rows[i];
      const plan::RequestId id = expected[i].request;
      if (!is_sampled_row(row, 5) || row[0].get<int64_t>() != id || !row[3].is_array()) {
        return fail(Code::kCorrupt, "{}: {} is no token of request {}", where, dump_json(row), id);
      }
      plan::SampledNext next{.request = id, .finished = row[2].get<bool>()};
      JIGE_TRY(next.token, as_int32(row[1], where));
      JIGE_TRY(next.accepted, as_int32(row[4], where));
      if (next.accepted < 0 || next.accepted > expected[i].draft_count) {
        return fail(Code::kCorrupt, "{}: {} of {} drafted tokens came true", where, next.accepted,
                    expected[i].draft_count);
      }
      JIGE_DO(add_forks(next, row[3], where));
      known_[next.request].sampled = true;
      sampled.push_back(std::move(next));
    }
    return sampled;
  }

  Status add_forks(plan::SampledNext& next, const Json& rows, std::string_view where) {
    Known& parent = known_[next.request];
    for (const Json& row : rows) {
      if (!is_sampled_row(row, 3) || parent.sampled || parent.forks_left-- <= 0 ||
          known_.contains(row[0].get<int64_t>())) {
        return fail(Code::kCorrupt, "{}: request {} cannot fork {}", where, next.request,
                    dump_json(row));
      }
      plan::ForkedNext fork{.child = row[0].get<int64_t>(), .finished = row[2].get<bool>()};
      JIGE_TRY(fork.token, as_int32(row[1], where));
      known_[fork.child] = {.sampled = true};
      next.forks.push_back(fork);
    }
    return {};
  }

  // The batch that a line names, taken out of those in flight; its requests that sample.
  Result<std::vector<Sampling>> land(plan::BatchId id, std::string_view where) {
    const auto found = in_flight_.find(id);
    if (found == in_flight_.end()) {
      return fail(Code::kCorrupt, "{}: batch {} is not in flight", where, id);
    }
    std::vector<Sampling> samples = std::move(found->second);
    in_flight_.erase(found);
    return samples;
  }

  Status complete(const Json& line, std::string_view where) {
    JIGE_TRY(const int64_t id, get_int(line, "batch", where));
    JIGE_TRY(const std::vector<Sampling> samples, land(id, where));
    JIGE_TRY(const std::vector<plan::SampledNext> sampled, sampled_of(line, samples, where));
    return expect_same(array_of(line, "over"), Json(scheduler_.complete(id, sampled)), where);
  }

  Status lose(const Json& line, std::string_view where) {
    JIGE_TRY(const int64_t id, get_int(line, "batch", where));
    JIGE_DO(land(id, where).map([](const auto&) {}));
    scheduler_.lose(id);
    return {};
  }

  Status lose_caches(std::string_view where) {
    if (!in_flight_.empty()) {
      return fail(Code::kCorrupt, "{}: caches are lost with batches in flight", where);
    }
    scheduler_.lose_caches();
    return {};
  }

  Status cancel(const Json& line, std::string_view where) {
    JIGE_TRY(const int64_t id, get_int(line, "id", where));
    return expect_same(array_of(line, "over"), Json(scheduler_.cancel(id)), where);
  }

  Status discard(const Json& line, std::string_view where) {
    JIGE_TRY(const int64_t id, get_int(line, "id", where));
    scheduler_.discard(id);
    return {};
  }

  Status change(const Json& line, std::string_view where) {
    const Json* const settings = find_field(line, "settings");
    if (!settings) return fail(Code::kCorrupt, "{}: a change without settings", where);
    JIGE_TRY(const plan::ServeSettings found, plan::settings_from_json(*settings, where));
    scheduler_.change(found);
    return {};
  }

  static Status expect_same(const Json& recorded, const Json& decided, std::string_view where) {
    if (recorded == decided) return {};
    return fail(Code::kInternal, "{}: recorded was {}, but the scheduler decides {}", where,
                dump_json(recorded), dump_json(decided));
  }

  plan::ServeScheduler scheduler_;
  std::map<plan::RequestId, Known> known_;
  std::map<plan::BatchId, std::vector<Sampling>> in_flight_;
  ReplayCounts counts_;
};

}  // namespace

Result<ReplayCounts> replay_event_log(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path));
  std::optional<Replay> replay;
  int64_t number = 0;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string where = fmt::format("{}: line {}", path, ++number);
    JIGE_TRY(const Json line, parse_json(std::string_view(text).substr(begin, end - begin), where));
    if (!line.is_object()) return fail(Code::kCorrupt, "{}: is no event", where);
    if (replay) {
      JIGE_DO(replay->step(line, where));
      continue;
    }
    if (get_string_or(line, "event", "", where).value_or("") != "start") {
      return fail(Code::kCorrupt, "{}: the log does not begin with its start", where);
    }
    JIGE_TRY(const plan::ServeSchedulerOptions options, options_of(line, where));
    replay.emplace(options);
  }
  if (!replay) return fail(Code::kCorrupt, "{}: the event log is empty", path);
  ReplayCounts counts = replay->counts();
  counts.events = number;
  return counts;
}

}  // namespace jige::serve
