#include "cluster/trace_reader.h"

#include <algorithm>
#include <optional>

#include "base/rng.h"
#include "base/split.h"
#include "cluster/free_gpus.h"
#include "cluster/model_catalogue.h"
#include "cluster/trace_fields.h"
#include "cluster/workload.h"

namespace jige::cluster {
namespace {

using Names = std::vector<std::string>;

constexpr double kTimeMax_s = 2e9;  // later than dates in seconds since 1970
constexpr double kStepsMax = 1e12;

const Names kGavel7 = {"job_type",    "command",   "steps_arg",   "needs_data",
                       "total_steps", "arrival_s", "scale_factor"};
const Names kGavel9 = {"job_type",     "command",  "steps_arg", "needs_data", "total_steps",
                       "scale_factor", "priority", "SLO",       "arrival_s"};
const Names kSwf = {"job",       "submit",    "wait",      "run_time",   "processors",
                    "cpu",       "memory",    "asked",     "asked_time", "asked_memory",
                    "status",    "user",      "group",     "executable", "queue",
                    "partition", "preceding", "think_time"};

// What a record says of its job.
struct Traced {
  double arrival_s = 0;
  int64_t gpus = 0;
  double length_s = 0;  // or
  double steps = 0;
  std::string model;
  std::string name;
};

// Nothing: the record is no job of ours.
using Parsed = Result<std::optional<Traced>>;

Parsed parse_gavel(const Record& record, int64_t line) {
  Traced job{.model = record.text("job_type"), .name = fmt::format("line {}", line)};
  JIGE_TRY(job.arrival_s, record.number("arrival_s", 0, kTimeMax_s));
  JIGE_TRY(job.gpus, record.integer("scale_factor", 1, kTraceGpusMax));
  JIGE_TRY(job.steps, record.number("total_steps", 1, kStepsMax));
  return job;
}

Parsed parse_muri_or_tiresias(const Record& record, int64_t line, double unit_s) {
  Traced job{.model = record.text("model_name"),
             .name = record.has("job_id") ? record.text("job_id") : fmt::format("line {}", line)};
  JIGE_TRY(job.arrival_s, record.number("submit_time", 0, kTimeMax_s / unit_s));
  JIGE_TRY(job.gpus, record.integer("num_gpu", 0, kTraceGpusMax));
  JIGE_TRY(job.length_s, record.number("duration", 0, kLengthMax_s / unit_s));
  job.arrival_s *= unit_s;
  job.length_s *= unit_s;
  if (job.gpus == 0 || job.length_s == 0) return std::nullopt;
  return job;
}

Parsed parse_alibaba(const Record& record) {
  Traced job{.name = record.text("name")};
  JIGE_TRY(job.gpus, record.integer("num_gpu", 0, kTraceGpusMax));
  JIGE_TRY(job.arrival_s, record.number("creation_time", 0, kTimeMax_s));
  if (record.text("deletion_time").empty() || record.text("scheduled_time").empty()) {
    return std::nullopt;
  }
  JIGE_TRY(const double end_s, record.number("deletion_time", 0, kTimeMax_s));
  JIGE_TRY(const double start_s, record.number("scheduled_time", 0, kTimeMax_s));
  job.length_s = end_s - start_s;
  if (job.gpus == 0 || job.length_s <= 0) return std::nullopt;
  return job;
}

Parsed parse_swf(const Record& record) {
  Traced job{.name = record.text("job")};
  JIGE_TRY(job.arrival_s, record.number("submit", 0, kTimeMax_s));
  JIGE_TRY(job.length_s, record.number("run_time", -1, kLengthMax_s));
  JIGE_TRY(job.gpus, record.integer("processors", -1, kTraceGpusMax));
  if (job.gpus <= 0) {
    JIGE_TRY(job.gpus, record.integer("asked", -1, kTraceGpusMax));
  }
  if (job.gpus <= 0 || job.length_s <= 0) return std::nullopt;
  return job;
}

std::vector<std::string> cells_between_tabs(std::string_view line) {
  const std::vector<std::string_view> cells = split_at(line, '\t');
  return {cells.begin(), cells.end()};
}

class Reader {
 public:
  Reader(std::string_view where, const TraceOptions& options, const ClusterSpec& spec)
      : where_(where),
        options_(options),
        spec_(spec),
        rng_(derive_key(options.seed, "trace models")) {
    workload_.models = catalogue_names();
  }

  Status add_line(const std::string_view line, int64_t number) {
    const bool csv = options_.format != TraceFormat::kGavel && options_.format != TraceFormat::kSwf;
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    if (options_.format == TraceFormat::kSwf && line[begin] == ';') return {};
    if (csv && head_.empty()) {
      head_ = split_csv(line);
      return require_columns(head_, wanted_columns(), where_);
    }
    const Names cells = csv                                      ? split_csv(line)
                        : options_.format == TraceFormat::kGavel ? cells_between_tabs(line)
                                                                 : split_blanks(line);
    const Names& names = csv                                    ? head_
                         : options_.format == TraceFormat::kSwf ? kSwf
                         : cells.size() == kGavel9.size()       ? kGavel9
                                                                : kGavel7;
    if (cells.size() != names.size()) {
      return fail(Code::kCorrupt, "{}:{}: has {} fields; {} has {}", where_, number, cells.size(),
                  trace_format_name(options_.format), names.size());
    }
    JIGE_TRY(const std::optional<Traced> job, parse(Record(where_, number, names, cells), number));
    if (job) {
      add_job(*job);
    } else {
      ++workload_.skipped;
    }
    return {};
  }

  bool full() const { return std::ssize(workload_.jobs) >= options_.jobs_max; }

  Result<Workload> take() {
    if (workload_.jobs.empty()) return fail(Code::kCorrupt, "{}: holds no job", where_);
    std::ranges::stable_sort(workload_.jobs, {}, &Job::arrival_ns);
    const int64_t first_ns = workload_.jobs.front().arrival_ns;
    for (Job& job : workload_.jobs) job.arrival_ns -= first_ns;
    const bool gavel = options_.format == TraceFormat::kGavel;
    workload_.provenance = fmt::format(
        "{}: arrivals and GPUs{} traced; models of {} jobs as the trace has them, of {} assigned "
        "from a mix; {}computation and traffic assigned by model",
        where_, gavel ? "" : " and lengths", named_, std::ssize(workload_.jobs) - named_,
        gavel ? "models and steps assigned by the trace's authors, " : "");
    return std::move(workload_);
  }

 private:
  Names wanted_columns() const {
    if (options_.format == TraceFormat::kAlibaba) {
      return {"num_gpu", "creation_time", "deletion_time", "scheduled_time"};
    }
    return {"num_gpu", "submit_time", "duration", "model_name"};
  }

  Parsed parse(const Record& record, int64_t line) const {
    switch (options_.format) {
      case TraceFormat::kGavel:
        return parse_gavel(record, line);
      case TraceFormat::kMuri:
        return parse_muri_or_tiresias(record, line, 1e-3);
      case TraceFormat::kTiresias:
        return parse_muri_or_tiresias(record, line, 1);
      case TraceFormat::kAlibaba:
        return parse_alibaba(record);
      case TraceFormat::kSwf:
        return parse_swf(record);
    }
    return std::nullopt;
  }

  void add_job(const Traced& traced) {
    Job job;
    job.name = traced.name;
    job.arrival_ns = static_cast<int64_t>(traced.arrival_s * kSecond);
    job.gpus = static_cast<int32_t>(traced.gpus);
    const int32_t named = model_named(traced.model);
    named_ += named >= 0;
    assign_model(job, named >= 0 ? named : draw_model(options_.models, rng_));
    if (traced.steps > 0) {
      const double steps_max = kLengthMax_s * kSecond / static_cast<double>(job.compute_ns);
      job.iterations = std::min(traced.steps, steps_max);
    } else if (why_never(job, spec_).empty()) {
      set_length(job, traced.length_s, spec_);
    }
    workload_.jobs.push_back(std::move(job));
  }

  std::string_view where_;
  const TraceOptions& options_;
  const ClusterSpec& spec_;
  Rng rng_;
  Names head_;
  Workload workload_;
  int64_t named_ = 0;
};

}  // namespace

std::string_view trace_format_name(TraceFormat format) {
  static constexpr std::string_view kNames[kTraceFormatCount] = {"gavel", "muri", "tiresias",
                                                                 "alibaba", "swf"};
  return kNames[static_cast<size_t>(format)];
}

Result<TraceFormat> guess_trace_format(std::string_view text, std::string_view where) {
  Lines lines(text);
  while (lines.next()) {
    const std::string_view first = lines.line();
    if (first.find_first_not_of(" \t") == std::string_view::npos) continue;
    const auto has = [&](std::string_view name) {
      return first.find(name) != std::string_view::npos;
    };
    if (first.starts_with(';') || split_blanks(first).size() == kSwf.size()) {
      return TraceFormat::kSwf;
    }
    if (has("scheduled_time") && has("num_gpu")) return TraceFormat::kAlibaba;
    if (has("iteration_time") && has("num_gpu")) return TraceFormat::kMuri;
    if (has("submit_time") && has("num_gpu")) return TraceFormat::kTiresias;
    if (std::ranges::count(first, '\t') >= 6) return TraceFormat::kGavel;
    break;
  }
  return fail(Code::kUnsupported,
              "{}: looks like no trace that is known here (gavel, muri, tiresias, alibaba, swf); "
              "--trace-format says which it is",
              where);
}

Result<Workload> read_trace(std::string_view text, std::string_view where,
                            const TraceOptions& options, const ClusterSpec& spec) {
  Reader reader(where, options, spec);
  Lines lines(text);
  while (!reader.full() && lines.next()) JIGE_DO(reader.add_line(lines.line(), lines.number()));
  return reader.take();
}

}  // namespace jige::cluster
