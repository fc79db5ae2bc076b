#include "cli/score_summary.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/table.h"

namespace jige::cli {
namespace {

std::string percent_of(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} % ({} of {})",
                     100.0 * static_cast<double>(part) / static_cast<double>(whole), part, whole);
}

}  // namespace

Json ScoreSummary::to_json() const {
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  Json json{{"records", record_count}, {"skipped_lines", skipped_count}};
  if (token_count > 0) {
    json["tokens"] = token_count;
    json["logprob"] = logprob_sum;
    json["perplexity"] = std::exp(-logprob_sum / static_cast<double>(token_count));
  }
  if (text_tokens > 0) {
    json["text_tokens"] = text_tokens;
    json["computed_tokens"] = computed_tokens;
  }
  if (choice_count > 0) {
    json["questions"] = choice_count;
    json["accuracy"] = share(right, choice_count);
    json["accuracy_per_token"] = share(right_per_token, choice_count);
    json["accuracy_per_byte"] = share(right_per_byte, choice_count);
  }
  if (reply_count > 0) {
    json["replies"] = reply_count;
    json["replies_right"] = replies_right;
    json["reply_accuracy"] = share(replies_right, reply_count);
    for (const auto& [kind, counted] : kinds) {
      json["kinds"][kind] = {{"replies", counted.count}, {"replies_right", counted.right}};
    }
  }
  return json;
}

std::string ScoreSummary::to_text() const {
  Table table({{}, {}});
  table.row({"records", fmt::format("{}", record_count)});
  if (token_count > 0) {
    const double mean = -logprob_sum / static_cast<double>(token_count);
    table.row({"tokens", fmt::format("{}, {:.4f} nats each, perplexity {:.3f}", token_count, mean,
                                     std::exp(mean))});
  }
  if (text_tokens > 0) {
    table.row({"computed", fmt::format("{} of {} tokens, shared beginnings once", computed_tokens,
                                       text_tokens)});
  }
  if (choice_count > 0) {
    table.row({"accuracy", percent_of(right, choice_count)});
    table.row({"by token", percent_of(right_per_token, choice_count)});
    table.row({"by byte", percent_of(right_per_byte, choice_count)});
  }
  if (reply_count > 0) table.row({"right replies", percent_of(replies_right, reply_count)});
  for (const auto& [kind, counted] : kinds) {
    table.row({"  " + kind, percent_of(counted.right, counted.count)});
  }
  return table.render();
}

}  // namespace jige::cli
