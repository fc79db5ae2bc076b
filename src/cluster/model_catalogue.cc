#include "cluster/model_catalogue.h"

#include <algorithm>
#include <numeric>

namespace jige::cluster {
namespace {

constexpr double kMB = 1e6;

// all-reduce, sharded, all-to-all
constexpr ModelProfile kCatalogue[] = {
    {"mobilenet", 0.060, {17 * kMB, 0, 0}, 0.5, 30},
    {"graphsage", 0.080, {8 * kMB, 0, 0}, 0.3, 30},
    {"resnet", 0.120, {102 * kMB, 0, 0}, 0.5, 40},
    {"vgg", 0.150, {553 * kMB, 0, 0}, 0.5, 45},
    {"bert", 0.200, {680 * kMB, 0, 0}, 0.5, 60},
    {"transformer-xl", 0.250, {1000 * kMB, 0, 0}, 0.3, 60},
    {"dlrm", 0.060, {20 * kMB, 0, 60 * kMB}, 0.2, 90},
    {"moe", 0.250, {400 * kMB, 0, 150 * kMB}, 0.1, 90},
    {"gpt", 0.900, {0, 3000 * kMB, 0}, 0.6, 120},
};

struct Alias {
  std::string_view prefix;
  std::string_view name;
};
constexpr Alias kAliases[] = {{"shufflenet", "mobilenet"}, {"alexnet", "vgg"},
                              {"lm", "transformer-xl"},    {"transformer", "transformer-xl"},
                              {"recommendation", "dlrm"},  {"deepspeech", "bert"},
                              {"inception", "resnet"},     {"cyclegan", "resnet"},
                              {"a3c", "graphsage"},        {"a2c", "graphsage"},
                              {"dqn", "graphsage"},        {"fsdp", "gpt"}};

std::string letters(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out += c;
  }
  return out;
}

}  // namespace

std::span<const ModelProfile> model_catalogue() { return kCatalogue; }

std::vector<std::string> catalogue_names() {
  std::vector<std::string> names;
  for (const ModelProfile& profile : kCatalogue) names.emplace_back(profile.name);
  return names;
}

void assign_model(Job& job, int32_t model) {
  const ModelProfile& profile = kCatalogue[model];
  job.model = model;
  job.compute_ns = static_cast<int64_t>(profile.compute_s * kSecond);
  job.bytes = profile.bytes;
  job.overlap = profile.overlap;
  job.restart_ns = static_cast<int64_t>(profile.restart_s * kSecond);
}

Result<std::vector<double>> model_mix(std::string_view name, std::string_view flag) {
  if (name == "all") return std::vector<double>(std::size(kCatalogue), 1);
  if (name == "low") return std::vector<double>{3, 3, 3, 1, 0, 0, 0, 0, 0};
  if (name == "medium") return std::vector<double>{1, 1, 2, 2, 2, 1, 1, 0, 1};
  if (name == "heavy") return std::vector<double>{0, 0, 0, 2, 1, 3, 3, 3, 2};
  return fail(Code::kInvalidArgument,
              "{}: \"{}\" is no mix of models; give low, medium, heavy or "
              "all",
              flag, name);
}

int32_t draw_model(const std::vector<double>& mix, Rng& rng) {
  double left = rng.uniform() * std::accumulate(mix.begin(), mix.end(), 0.0);
  int32_t last = 0;
  for (size_t i = 0; i < mix.size(); ++i) {
    if (mix[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    left -= mix[i];
    if (left < 0) break;
  }
  return last;
}

int32_t model_named(std::string_view trace_name) {
  std::string given = letters(trace_name);
  if (given.empty()) return -1;
  for (const Alias& alias : kAliases) {
    if (given.starts_with(letters(alias.prefix))) given = letters(alias.name);
  }
  for (size_t i = 0; i < std::size(kCatalogue); ++i) {
    if (given.starts_with(letters(kCatalogue[i].name))) return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace jige::cluster
