#include "serve/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"

namespace jige::serve {
namespace {

// The two halves of a 128-bit hash of everything in a batch, in hexadecimal.
std::string digest_of(const plan::Batch& batch) {
  plan::PrefixHash hash = plan::prefix_seed(0);
  std::vector<int32_t> numbers;
  const auto add = [&](int64_t value) {
    numbers.push_back(static_cast<int32_t>(static_cast<uint64_t>(value) >> 32));
    numbers.push_back(static_cast<int32_t>(static_cast<uint64_t>(value) & 0xffffffffu));
  };
  for (const plan::WorkItem& item : batch.items) {
    numbers.clear();
    add(item.request);
    if (item.adapter != plan::kBaseAdapter) add(item.adapter);
    add(item.context_count);
    add(item.sample_rows());
    add(std::ssize(item.tokens));
    numbers.insert(numbers.end(), item.tokens.begin(), item.tokens.end());
    numbers.insert(numbers.end(), item.blocks.begin(), item.blocks.end());
    if (item.state != plan::kNoState) add(item.state);
    if (item.spare != plan::kNoState) add(item.spare);
    hash = plan::extend_prefix(hash, numbers);
  }
  numbers.clear();
  for (const plan::BlockCopy& copy : batch.copies) {
    add(copy.src);
    add(copy.dst);
  }
  for (const plan::StateCopy& copy : batch.state_copies) {
    add(copy.src);
    add(copy.dst);
  }
  hash = plan::extend_prefix(hash, numbers);
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Json as_json(std::span<const plan::RequestId> ids) {
  return std::vector<plan::RequestId>(ids.begin(), ids.end());
}

}  // namespace

Json batch_line(const std::optional<plan::Batch>& batch) {
  Json line = {{"event", "batch"}};
  if (!batch) return line;
  line["id"] = batch->id;
  Json items = Json::array();
  for (const plan::WorkItem& item : batch->items) {
    items.push_back({item.request, item.context_count, item.tokens.size()});
  }
  line["items"] = std::move(items);
  line["copies"] = batch->copies.size();
  if (!batch->state_copies.empty()) line["state_copies"] = batch->state_copies.size();
  line["preempted"] = batch->preempted;
  line["digest"] = digest_of(*batch);
  return line;
}

Result<std::unique_ptr<EventLog>> EventLog::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  std::FILE* file = fd >= 0 ? ::fdopen(fd, "w") : nullptr;
  if (!file) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    return file_error(path, "open", reason);
  }
  return std::unique_ptr<EventLog>(new EventLog(path, file));
}

void EventLog::start(const plan::ServeSchedulerOptions& options) {
  Json line = {{"event", "start"},
               {"policy", plan::policy_name(options.policy)},
               {"optimistic", options.admission == plan::Admission::kOptimistic},
               {"batch_requests_max", options.batch_requests_max},
               {"batch_tokens_max", options.batch_tokens_max},
               {"sample_rows_max", options.sample_rows_max},
               {"batches_in_flight_max", options.batches_in_flight_max},
               {"preemptions_max", options.preemptions_max},
               {"fair_share", options.fair_share},
               {"shortest_first", options.shortest_first},
               {"block_count", options.pool.block_count},
               {"block_tokens", options.pool.block_tokens},
               {"prefix_cache", options.pool.prefix_cache}};
  if (options.in_flight_requests_min > 1) {
    line["in_flight_requests_min"] = options.in_flight_requests_min;
  }
  if (options.whole_prompt_tokens > 0) line["whole_prompt_tokens"] = options.whole_prompt_tokens;
  if (options.state_count > 0) line["state_count"] = options.state_count;
  if (options.kept_state_count > 0) {
    line["kept_state_count"] = options.kept_state_count;
    line["kept_margin"] = options.kept_margin;
  }
  if (options.policy == plan::ServePolicy::kRounds) {
    line["round_prompts"] = options.round_prompts;
    line["round_steps"] = options.round_steps;
  }
  write(line);
}

void EventLog::arrive(const plan::RequestSpec& spec) {
  Json line = {{"event", "arrive"},
               {"id", spec.id},
               {"prompt", spec.prompt},
               {"new_tokens", spec.max_new_tokens},
               {"forks", spec.fork_count},
               {"priority", spec.priority},
               // As signed numbers, which every reader of JSON takes whole.
               {"tenant", static_cast<int64_t>(spec.tenant)},
               {"salt", static_cast<int64_t>(spec.cache_salt)},
               {"cached_max", spec.cached_max},
               {"adapter", spec.adapter}};
  for (const plan::TokenRun& run : spec.whole_runs) {
    line["whole_runs"].push_back({run.begin, run.end});
  }
  write(line);
}

void EventLog::draft(plan::RequestId request, std::span<const int32_t> tokens,
                     int32_t certain_count) {
  Json line = {{"event", "draft"},
               {"id", request},
               {"tokens", std::vector<int32_t>(tokens.begin(), tokens.end())}};
  if (certain_count > 0) line["certain"] = certain_count;
  write(line);
}

void EventLog::batch(const std::optional<plan::Batch>& batch) { write(batch_line(batch)); }

void EventLog::complete(plan::BatchId batch, std::span<const plan::SampledNext> sampled,
                        std::span<const plan::RequestId> over) {
  Json rows = Json::array();
  for (const plan::SampledNext& next : sampled) {
    Json forks = Json::array();
    for (const plan::ForkedNext& fork : next.forks) {
      forks.push_back({fork.child, fork.token, fork.finished});
    }
    rows.push_back({next.request, next.token, next.finished, std::move(forks), next.accepted});
  }
  write({{"event", "complete"},
         {"batch", batch},
         {"sampled", std::move(rows)},
         {"over", as_json(over)}});
}

void EventLog::lose(plan::BatchId batch) { write({{"event", "lose"}, {"batch", batch}}); }

void EventLog::lose_caches() { write({{"event", "lose_caches"}}); }

void EventLog::cancel(plan::RequestId request, std::span<const plan::RequestId> over) {
  write({{"event", "cancel"}, {"id", request}, {"over", as_json(over)}});
}

void EventLog::discard(plan::RequestId request) { write({{"event", "discard"}, {"id", request}}); }

void EventLog::change(const plan::ServeSettings& settings) {
  write({{"event", "change"}, {"settings", plan::settings_json(settings)}});
}

void EventLog::write(const Json& line) {
  if (!file_) return;
  const std::string text = dump_json(line) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                       std::fflush(file_.get()) == 0;
  if (written) return;
  log_error("{}: the event log cannot be written ({}); no more events are recorded", path_,
            std::strerror(errno));
  file_.reset();
}

}  // namespace jige::serve
