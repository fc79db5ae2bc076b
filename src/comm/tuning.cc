#include "comm/tuning.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace jige::comm {
namespace {

constexpr std::string_view kFormat = "jige.comm-tuning";
constexpr int64_t kBytesFirst = 1 << 10;
constexpr int64_t kBytesLast = 256 << 10;
constexpr int kRounds = 11;

// The seconds of all-reduces on each path, in turns: the fastest, which other load disturbs least.
struct Pair {
  double direct = 0;
  double ring = 0;
};
Result<Pair> time_paths(Communicator& group, std::vector<float>& data, int64_t count) {
  std::vector<double> direct;
  std::vector<double> ring;
  for (int round = 0; round < kRounds; ++round) {
    for (const bool directly : {true, false}) {
      group.set_direct_bytes_max(directly ? kBytesLast : -1);
      JIGE_DO(group.barrier());
      const StopWatch watch;
      JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kMax));
      (directly ? direct : ring).push_back(watch.seconds());
    }
  }
  return Pair{*std::min_element(direct.begin(), direct.end()),
              *std::min_element(ring.begin(), ring.end())};
}

bool is_of(const Json& entry, Communicator& group) {
  return entry.is_object() && entry.value("transport", "") == group.transport().kind() &&
         entry.value("ranks", 0) == group.size() &&
         entry.value("plan", int64_t{-1}) == static_cast<int64_t>(group.plan().hash());
}

Result<Json> load_entries(const std::string& path) {
  if (!std::filesystem::exists(path)) return Json::array();
  JIGE_TRY(const std::string text, read_file(path, 16 << 20));
  JIGE_TRY(const Json json, parse_json(text, path));
  JIGE_TRY(const std::string format, get_string(json, "format", path));
  if (format != kFormat || !json.contains("entries") || !json["entries"].is_array()) {
    return fail(Code::kCorrupt, "{}: is not a file of {}", path, kFormat);
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
  std::vector<float> data(static_cast<size_t>(kBytesLast) / sizeof(float));
  // The end up to which the direct path wins most altogether; one odd measurement moves it little.
  int64_t found = 0;
  double won = 0;
  double won_max = 0;
  for (int64_t bytes = kBytesFirst; bytes <= kBytesLast; bytes *= 2) {
    JIGE_TRY(const Pair pair, time_paths(group, data, bytes / 4));
    won += std::log(std::max(pair.ring, 1e-9) / std::max(pair.direct, 1e-9));
    if (won <= won_max) continue;
    won_max = won;
    found = bytes;
  }
  group.set_direct_bytes_max(kBytesLast);
  JIGE_DO(group.broadcast(&found, &found, 1, DType::kI64, 0));
  group.set_direct_bytes_max(found);
  return found;
}

Result<std::optional<int64_t>> load_tuning(const std::string& path, Communicator& group) {
  JIGE_TRY(const Json entries, load_entries(path));
  for (const Json& entry : entries) {
    if (!is_of(entry, group)) continue;
    JIGE_TRY(const int64_t bytes, get_int(entry, "direct_bytes_max", path));
    return std::optional<int64_t>(bytes);
  }
  return std::optional<int64_t>();
}

Status store_tuning(const std::string& path, Communicator& group, int64_t direct_bytes_max) {
  JIGE_TRY(Json entries, load_entries(path));
  Json kept = Json::array();
  for (Json& entry : entries) {
    if (!is_of(entry, group)) kept.push_back(std::move(entry));
  }
  kept.push_back({{"transport", group.transport().kind()},
                  {"ranks", group.size()},
                  {"plan", group.plan().hash()},
                  {"direct_bytes_max", direct_bytes_max}});
  const Json json = {{"format", kFormat}, {"version", 1}, {"entries", std::move(kept)}};
  return write_file_atomic(path, dump_json(json, 1) + "\n");
}

}  // namespace jige::comm
