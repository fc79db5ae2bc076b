#include "slurm/snapshot.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/ascii.h"
#include "base/json.h"
#include "base/split.h"
#include "slurm/admin_comment.h"
#include "slurm/host_list.h"
#include "slurm/node_limits.h"

namespace jige::slurm {
namespace {

constexpr std::string_view kSqueue = "squeue --json";
// So that products of them are whole numbers of 32 bits.
constexpr int64_t kNodesMax = 65536;
constexpr int64_t kRestartsMax = 1'000'000;
constexpr int32_t kGpusMax = 4096;
constexpr int64_t kCpusMax = 1'000'000'000, kMemoryMax_mb = 1'000'000'000;
// Beyond all dates, ids and limits of Slurm, which have 32 bits; minutes in seconds fit as well.
constexpr double kNumberMax = 1e15;

int64_t whole_number(const Json& number) {
  return static_cast<int64_t>(std::clamp(number.get<double>(), -kNumberMax, kNumberMax));
}

// A number, plain or as {"set": true, "number": 5}; `fallback` where there is none.
int64_t number_of(const Json& object, const char* field, int64_t fallback) {
  const auto found = object.find(field);
  if (found == object.end()) return fallback;
  if (found->is_number()) return whole_number(*found);
  if (!found->is_object()) return fallback;
  const auto set = found->find("set");
  if (set != found->end() && set->is_boolean() && !set->get<bool>()) return fallback;
  const auto number = found->find("number");
  return number != found->end() && number->is_number() ? whole_number(*number) : fallback;
}

bool flag_of(const Json& object, const char* field, bool fallback) {
  const auto found = object.find(field);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : fallback;
}

// A word, plain or as the first of a list.
std::string word_of(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array() && !found->empty() && found->front().is_string()) {
    return found->front().get<std::string>();
  }
  return "";
}

std::vector<std::string> words_of(const Json& object, const char* field) {
  std::vector<std::string> words;
  const auto found = object.find(field);
  if (found == object.end()) return words;
  if (found->is_string()) words.push_back(found->get<std::string>());
  if (!found->is_array()) return words;
  for (const Json& item : *found) {
    if (item.is_string()) words.push_back(item.get<std::string>());
  }
  return words;
}

SeenState state_of(const std::set<std::string>& states, int64_t priority) {
  if (states.contains("COMPLETING")) return SeenState::kEnding;
  for (const char* running :
       {"RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED", "STAGE_OUT"}) {
    if (states.contains(running)) return SeenState::kRunning;
  }
  for (const char* pending :
       {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}) {
    if (states.contains(pending)) return priority == 0 ? SeenState::kHeld : SeenState::kReleased;
  }
  return SeenState::kGone;
}

// Requests that pin a job's shape and nothing else can be placed.
std::string why_not_placed(const Json& json, const SeenJob& job) {
  if (number_of(json, "het_job_id", 0) > 0) return "it is a heterogeneous job";
  const std::string dependency = word_of(json, "dependency");
  if (dependency.find("(failed)") != std::string::npos) {
    return "a job that it depends on has failed, so that it never runs; cancel it (" + dependency +
           ")";
  }
  if (!dependency.empty()) return "it depends on other jobs";
  for (const char* field : {"tres_per_job", "tres_per_socket", "tres_per_task"}) {
    if (gpus_in(word_of(json, field)) > 0) {
      return "it asks for GPUs in another form than so many a node; use -N and --gres=gpu:N";
    }
  }
  if (job.gpus_per_node == 0) return "it asks for no GPU";
  if (job.state > SeenState::kReleased) return "";
  const int32_t nodes_max = job.node_count_max;
  if (nodes_max > 0 && nodes_max < job.node_count) {
    return fmt::format("its tasks need {} nodes, and it asks for {} at most", job.node_count,
                       nodes_max);
  }
  // Behind a first placement they are Jige's.
  const std::string named = word_of(json, "required_nodes");
  const bool was_placed = job.admin_comment.starts_with(kPlacedMark);
  if (!named.empty() && !was_placed) {
    return fmt::format("it names nodes ({}), which Jige chooses; scontrol update ReqNodeList=",
                       named);
  }
  return why_not_judged(job.needs.features);
}

Result<NodeNeeds> needs_of(const Json& json, const SeenJob& job) {
  NodeNeeds needs;
  const int64_t cpus = std::clamp<int64_t>(number_of(json, "cpus", 0), 0, kCpusMax);
  needs.cpus = (cpus + job.node_count - 1) / job.node_count;
  needs.cpus = std::max(needs.cpus, number_of(json, "minimum_cpus_per_node", 0));
  needs.memory_mb = number_of(json, "memory_per_node", 0);
  if (needs.memory_mb <= 0) {
    needs.memory_mb =
        needs.cpus * std::clamp<int64_t>(number_of(json, "memory_per_cpu", 0), 0, kMemoryMax_mb);
  }
  needs.whole = word_of(json, "shared") == "none";
  needs.features = word_of(json, "features");
  needs.reservation = word_of(json, "resv_name");
  JIGE_TRY(needs.excluded, expand_hosts(word_of(json, "excluded_nodes")));
  return needs;
}

ArrayPart array_of(const Json& json) {
  ArrayPart part;
  part.array = number_of(json, "array_job_id", 0);
  if (part.array <= 0) return {};
  part.task = number_of(json, "array_task_id", -1);
  part.tasks = word_of(json, "array_task_string");
  part.tasks = part.tasks.substr(0, part.tasks.find('%'));
  int64_t first = -1;
  const char* const end = part.tasks.data() + part.tasks.size();
  const auto [behind, error] = std::from_chars(part.tasks.data(), end, first);
  if (error == std::errc() && behind == end && first >= 0) {
    // An array of one task is that task: Slurm takes none out of it.
    part.task = first;
    part.tasks.clear();
  } else if (!part.tasks.empty()) {
    part.task = -1;
  }
  part.at_once_max = static_cast<int32_t>(
      std::clamp<int64_t>(number_of(json, "array_max_tasks", 0), 0, kNodesMax));
  return part;
}

Result<SeenJob> parse_job(const Json& json) {
  SeenJob job;
  JIGE_TRY(job.id, get_int(json, "job_id", kSqueue));
  job.name = word_of(json, "name");
  job.user = word_of(json, "user_name");
  job.partition = word_of(json, "partition");
  job.comment = word_of(json, "comment");
  AdminComment comment = split_admin_comment(word_of(json, "admin_comment"));
  job.admin_comment = std::move(comment.mark);
  job.note = std::move(comment.note);
  job.reason = word_of(json, "state_reason");
  std::set<std::string> states;
  for (const std::string& word : words_of(json, "job_state")) states.insert(word);
  if (states.empty()) return fail(Code::kCorrupt, "{}: job {} has no state", kSqueue, job.id);
  job.stoppable = flag_of(json, "requeue", true) && flag_of(json, "batch_flag", true);
  for (const std::string& flag : words_of(json, "flags")) {
    if (flag == "COMPLETING") states.insert(flag);
    // Slurm would start it on as many nodes as before, with too few named.
    if (flag == "JOB_RESIZED") job.stoppable = false;
  }
  job.slurm_state = word_of(json, "job_state");
  job.state = state_of(states, number_of(json, "priority", 1));
  job.node_count =
      static_cast<int32_t>(std::clamp<int64_t>(number_of(json, "node_count", 1), 1, kNodesMax));
  job.node_count_max =
      static_cast<int32_t>(std::clamp<int64_t>(number_of(json, "max_nodes", 0), 0, kNodesMax));
  job.gpus_per_node = gpus_in(word_of(json, "tres_per_node"));
  job.submit_s = number_of(json, "submit_time", 0);
  job.start_s = number_of(json, "start_time", 0);
  job.end_s = number_of(json, "end_time", 0);
  job.begin_s = number_of(json, "eligible_time", 0);
  job.time_limit_s = 60 * number_of(json, "time_limit", 0);
  job.restarts =
      static_cast<int32_t>(std::clamp<int64_t>(number_of(json, "restart_cnt", 0), 0, kRestartsMax));
  job.array = array_of(json);
  JIGE_TRY(job.needs, needs_of(json, job));
  job.other_request = why_not_placed(json, job);
  if (job.state == SeenState::kRunning || job.state == SeenState::kEnding) {
    JIGE_TRY(job.nodes, expand_hosts(word_of(json, "nodes")));
    const std::vector<std::string> detail = words_of(json, "gres_detail");
    for (size_t i = 0; i < job.nodes.size(); ++i) {
      const bool known = detail.size() == job.nodes.size();
      job.node_gpus.push_back(known ? gpus_in(detail[i]) : job.gpus_per_node);
    }
  }
  return job;
}

Result<std::vector<Json>> list_of(const Json& json, const char* field, std::string_view where) {
  const auto list = json.is_object() ? json.find(field) : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array()) {
    return fail(Code::kCorrupt, "{}: has no list \"{}\"", where, field);
  }
  std::vector<Json> items;
  for (const Json& item : *list) {
    if (!item.is_object()) return fail(Code::kCorrupt, "{}: {} holds no object", where, field);
    items.push_back(item);
  }
  return items;
}

}  // namespace

std::string_view seen_name(SeenState state) {
  switch (state) {
    case SeenState::kHeld:
      return "held";
    case SeenState::kReleased:
      return "released";
    case SeenState::kRunning:
      return "running";
    case SeenState::kEnding:
      return "ending";
    case SeenState::kGone:
      return "gone";
  }
  return "";
}

int32_t gpus_in(std::string_view gres) {
  int32_t sum = 0;
  while (!gres.empty()) {
    // Commas inside brackets belong to the item.
    size_t end = 0;
    for (int depth = 0; end < gres.size() && (gres[end] != ',' || depth > 0); ++end) {
      depth += gres[end] == '(' || gres[end] == '[';
      depth -= gres[end] == ')' || gres[end] == ']';
    }
    std::string_view item = gres.substr(0, end);
    gres.remove_prefix(std::min(gres.size(), end + 1));
    if (item.starts_with("gres:") || item.starts_with("gres/")) item.remove_prefix(5);
    if (!item.starts_with("gpu") || (item.size() > 3 && item[3] != ':' && item[3] != '=')) continue;
    item = item.substr(0, item.find('('));
    const std::string_view last = item.substr(item.find_last_of(":=") + 1);
    int32_t count = 1;
    const auto [stop, error] = std::from_chars(last.data(), last.data() + last.size(), count);
    if (error != std::errc() || stop != last.data() + last.size() || count < 0) count = 1;
    sum = std::min(sum + std::min(count, kGpusMax), kGpusMax);
  }
  return sum;
}

bool in_partition(const SeenNode& node, std::string_view partition) {
  return std::ranges::find(node.partitions, partition) != node.partitions.end();
}

bool names_partition(const SeenJob& job, std::string_view partition) {
  const std::vector<std::string_view> names = split_at(job.partition, ',');
  return std::ranges::find(names, partition) != names.end();
}

Result<std::vector<SeenJob>> parse_jobs(std::string_view squeue_json) {
  JIGE_TRY(const Json answer, parse_json(squeue_json, kSqueue));
  JIGE_TRY(const std::vector<Json> items, list_of(answer, "jobs", kSqueue));
  std::vector<SeenJob> jobs;
  for (const Json& item : items) {
    JIGE_TRY(SeenJob job, parse_job(item));
    jobs.push_back(std::move(job));
  }
  std::ranges::sort(jobs, {}, &SeenJob::id);
  return jobs;
}

Result<std::vector<SeenNode>> parse_nodes(std::string_view json, std::string_view where) {
  JIGE_TRY(const Json answer, parse_json(json, where));
  if (!find_field(answer, "nodes") && find_field(answer, "sinfo")) {
    return fail(Code::kUnsupported, "{}: lists groups of nodes", where);
  }
  JIGE_TRY(const std::vector<Json> items, list_of(answer, "nodes", where));
  std::vector<SeenNode> nodes;
  for (const Json& item : items) {
    SeenNode node;
    JIGE_TRY(node.name, get_string(item, "name", where));
    node.gpus = gpus_in(word_of(item, "gres"));
    std::vector<std::string> words = words_of(item, "state");
    for (const std::string& flag : words_of(item, "state_flags")) words.push_back(flag);
    bool base_up = false;
    for (std::string& word : words) {
      word = lower_ascii(word);
      base_up = base_up || word == "idle" || word == "mixed" || word == "allocated";
    }
    for (const char* bad : {"drain", "not_responding", "fail", "power_down", "powered_down",
                            "powering_down", "powering_up", "reboot", "maintenance", "down",
                            "reboot_issued", "reboot_requested", "invalid_reg", "future"}) {
      if (std::ranges::find(words, bad) != words.end()) base_up = false;
    }
    node.up = base_up;
    node.state = fmt::format("{}", fmt::join(words, "+"));
    node.reserved = std::ranges::find(words, "reserved") != words.end();
    node.cpus = number_of(item, "cpus", 0);
    node.cpus_used = number_of(item, "alloc_cpus", 0);
    node.memory_mb = number_of(item, "real_memory", 0);
    node.memory_used_mb = number_of(item, "alloc_memory", 0);
    for (const std::string& list : words_of(item, "active_features")) {
      for (const auto name : split_at(list, ',')) node.features.emplace_back(name);
    }
    node.partitions = words_of(item, "partitions");
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace jige::slurm
