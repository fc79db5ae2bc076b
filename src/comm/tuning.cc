#include "comm/tuning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace jige::comm {
namespace {

constexpr std::string_view kTuningFormat = "jige.comm-tuning";
constexpr int64_t kBytesFirst = 1 << 10;
constexpr int64_t kDirectBytesLast = 256 << 10;
constexpr int64_t kTreeBytesLast = 4 << 20;
constexpr int kRounds = 11;

// How much faster all-reduces of a size are one way than the other, as a logarithm: by the fastest
// of each, which other load disturbs least.
using Choose = std::function<void(bool first)>;
Result<double> head_start(Communicator& group, std::vector<float>& data, int64_t count,
                          const Choose& choose) {
  std::array<double, 2> fastest = {1e9, 1e9};
  for (int round = 0; round < kRounds; ++round) {
    for (const bool first : {true, false}) {
      choose(first);
      JIGE_DO(group.barrier());
      const StopWatch watch;
      JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kMax));
      double& least = fastest[first ? 0 : 1];
      least = std::min(least, watch.seconds());
    }
  }
  return std::log(std::max(fastest[1], 1e-9) / std::max(fastest[0], 1e-9));
}

// The end up to which the first way wins most altogether; one odd measurement moves it little.
Result<int64_t> measure_end(Communicator& group, int64_t bytes_last, const Choose& choose) {
  std::vector<float> data(static_cast<size_t>(bytes_last) / sizeof(float));
  int64_t found = 0;
  double won = 0;
  double won_max = 0;
  for (int64_t bytes = kBytesFirst; bytes <= bytes_last; bytes *= 2) {
    JIGE_TRY(const double gain, head_start(group, data, bytes / 4, choose));
    won += gain;
    if (won <= won_max) continue;
    won_max = won;
    found = bytes;
  }
  choose(false);
  JIGE_DO(group.broadcast(&found, &found, 1, DType::kI64, 0));
  return found;
}

// Of the plan but for where its trees end.
int64_t plan_key(const Communicator& group) {
  RingPlan plan = group.plan();
  if (plan.trees) plan.trees->bytes_max = kTreesUnmeasured;
  return static_cast<int64_t>(plan.hash());
}

bool is_of(const Json& entry, const Communicator& group) {
  const auto has = [&](std::string_view field, int64_t value) {
    const auto told = get_int(entry, field, "");
    return told && *told == value;
  };
  const auto transport = get_string(entry, "transport", "");
  return transport && *transport == group.transport().kind() && has("ranks", group.size()) &&
         has("plan", plan_key(group));
}

bool leaves_trees_open(const Communicator& group) {
  return group.plan().trees && group.plan().trees->bytes_max == kTreesUnmeasured;
}

Result<Json> load_entries(const std::string& path) {
  if (!std::filesystem::exists(path)) return Json::array();
  JIGE_TRY(const std::string text, read_file(path, 16 << 20));
  JIGE_TRY(const Json json, parse_json(text, path));
  JIGE_TRY(const std::string format, get_string(json, "format", path));
  if (format != kTuningFormat || !json.contains("entries") || !json["entries"].is_array()) {
    return fail(Code::kCorrupt, "{}: is not a file of {}", path, kTuningFormat);
  }
  for (const Json& entry : json["entries"]) {
    JIGE_TRY([[maybe_unused]] const auto transport, get_string(entry, "transport", path));
    for (const char* field : {"ranks", "plan", "direct_bytes_max"}) {
      JIGE_TRY([[maybe_unused]] const int64_t value, get_int(entry, field, path));
    }
  }
  return json["entries"];
}

}  // namespace

Result<int64_t> measure_direct_bytes_max(Communicator& group) {
  JIGE_TRY(const int64_t found, measure_end(group, kDirectBytesLast, [&](bool directly) {
             group.set_direct_bytes_max(directly ? kDirectBytesLast : -1);
           }));
  group.set_direct_bytes_max(found);
  return found;
}

Result<int64_t> measure_tree_bytes_max(Communicator& group) {
  const int64_t direct_bytes_max = group.options().direct_bytes_max;
  group.set_direct_bytes_max(-1);
  auto found = measure_end(group, kTreeBytesLast, [&](bool trees) {
    group.set_tree_bytes_max(trees ? kTreeBytesLast : 0);
  });
  group.set_direct_bytes_max(direct_bytes_max);
  if (found) group.set_tree_bytes_max(*found);
  return found;
}

Result<Tuning> measure_tuning(Communicator& group) {
  Tuning tuning;
  if (leaves_trees_open(group)) JIGE_DO(measure_tree_bytes_max(group));
  if (group.plan().trees) tuning.tree_bytes_max = group.plan().trees->bytes_max;
  JIGE_TRY(tuning.direct_bytes_max, measure_direct_bytes_max(group));
  return tuning;
}

Result<std::optional<Tuning>> load_tuning(const std::string& path, const Communicator& group) {
  JIGE_TRY(const Json entries, load_entries(path));
  for (const Json& entry : entries) {
    if (!is_of(entry, group)) continue;
    Tuning tuning;
    JIGE_TRY(tuning.direct_bytes_max, get_int(entry, "direct_bytes_max", path));
    JIGE_TRY(tuning.tree_bytes_max, get_int_or(entry, "tree_bytes_max", kTreesUnmeasured, path));
    if (leaves_trees_open(group) && tuning.tree_bytes_max < 0) break;
    return std::optional<Tuning>(tuning);
  }
  return std::optional<Tuning>();
}

Status store_tuning(const std::string& path, const Communicator& group, const Tuning& tuning) {
  JIGE_TRY(Json entries, load_entries(path));
  Json kept = Json::array();
  for (Json& entry : entries) {
    if (!is_of(entry, group)) kept.push_back(std::move(entry));
  }
  Json& entry = kept.emplace_back(Json{{"transport", group.transport().kind()},
                                       {"ranks", group.size()},
                                       {"plan", plan_key(group)},
                                       {"direct_bytes_max", tuning.direct_bytes_max}});
  if (tuning.tree_bytes_max >= 0) entry["tree_bytes_max"] = tuning.tree_bytes_max;
  const Json json = {{"format", kTuningFormat}, {"version", 1}, {"entries", std::move(kept)}};
  return write_file_atomic(path, dump_json(json, 1) + "\n");
}

}  // namespace jige::comm
