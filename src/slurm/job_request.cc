#include "slurm/job_request.h"

#include <ctime>

#include "cluster/free_gpus.h"
#include "cluster/model_catalogue.h"
#include "cluster/trace_fields.h"
#include "cluster/workload.h"
#include "slurm/backend.h"

namespace jige::slurm {
namespace {

constexpr double kSecondsMax = 1e8;
constexpr int64_t kBeginOfOthersMax_s = 120 + 300 + 30;

Result<double> seconds_of(const std::string& word, std::string_view value) {
  const std::optional<double> seconds = cluster::parse_double(value);
  if (!seconds || *seconds < 0 || *seconds > kSecondsMax) {
    return fail(Code::kInvalidArgument, "comment: {}: give seconds from 0 to {:.0f}", word,
                kSecondsMax);
  }
  return *seconds;
}

// The words of the comment, where it is one for us.
struct Words {
  std::string model, checkpoint;
  double length_s = 0;
  double restart_s = -1;
};

Result<Words> read_words(const std::string& comment) {
  Words words;
  const std::vector<std::string> parts = cluster::split_blanks(comment);
  if (parts.empty() || parts[0] != "jige") return words;
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    const std::string key = parts[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : parts[i].substr(equals + 1);
    if (value.empty()) {
      return fail(Code::kInvalidArgument, "comment: \"{}\": give it as KEY=VALUE", parts[i]);
    }
    if (key == "model") {
      words.model = value;
    } else if (key == "checkpoint") {
      words.checkpoint = value;
    } else if (key == "length") {
      JIGE_TRY(words.length_s, seconds_of(parts[i], value));
    } else if (key == "restart") {
      JIGE_TRY(words.restart_s, seconds_of(parts[i], value));
    } else {
      return fail(
          Code::kInvalidArgument,
          "comment: \"{}\" is not known; give model, length, restart, checkpoint with =", parts[i]);
    }
  }
  return words;
}

}  // namespace

AskedFor::AskedFor(const SeenJob& seen)
    : node_count(seen.node_count),
      gpus_per_node(seen.gpus_per_node),
      time_limit_s(seen.time_limit_s),
      comment(seen.comment),
      other_request(seen.other_request),
      needs(seen.needs) {}

bool begins_later(const SeenJob& seen, int64_t unix_s) {
  const bool was_placed = seen.restarts > 0 || seen.admin_comment.starts_with(kPlacedMark);
  return seen.begin_s > unix_s + (was_placed ? kBeginOfOthersMax_s : 0);
}

std::string slurm_date(int64_t unix_s) {
  const time_t time = unix_s;
  struct tm local {};
  char text[32];
  if (!localtime_r(&time, &local)) return fmt::format("{}", unix_s);
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &local));
}

Result<JobRequest> read_request(const SeenJob& seen, const cluster::ClusterSpec& spec,
                                const RequestDefaults& defaults) {
  if (!seen.other_request.empty()) return fail(Code::kUnsupported, "{}", seen.other_request);
  JIGE_TRY(const Words words, read_words(seen.comment));
  JobRequest request;
  cluster::Job& job = request.job;
  job.name = fmt::format("{}", seen.id);
  job.nodes = seen.node_count;
  job.gpus = seen.node_count * seen.gpus_per_node;
  job.restart_ns = static_cast<int64_t>(defaults.restart_s * cluster::kSecond);
  job.stoppable = seen.stoppable;
  if (!words.model.empty()) {
    const int32_t model = cluster::model_named(words.model);
    if (model < 0) {
      return fail(Code::kInvalidArgument, "comment: model \"{}\" is not one of {}", words.model,
                  fmt::join(cluster::catalogue_names(), ", "));
    }
    cluster::assign_model(job, model);
    request.model = words.model;
  }
  if (words.restart_s >= 0) {
    job.restart_ns = static_cast<int64_t>(words.restart_s * cluster::kSecond);
  }
  request.checkpoint = words.checkpoint;
  for (size_t at = 0; (at = request.checkpoint.find("%j", at)) != std::string::npos;) {
    request.checkpoint.replace(at, 2, fmt::format("{}", seen.id));
  }
  if (std::string reason = cluster::why_never(job, spec); !reason.empty()) {
    return fail(Code::kUnsupported, "{}", reason);
  }
  double length_s = words.length_s;
  if (length_s <= 0) length_s = static_cast<double>(seen.time_limit_s);
  if (length_s <= 0) length_s = defaults.length_s;
  cluster::set_length(job, length_s, spec);
  return request;
}

}  // namespace jige::slurm
