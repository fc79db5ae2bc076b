// Traces of real clusters as workloads, from the text of a file:
//
//   gavel     7 tab columns without a head: job_type, command, steps_arg, needs_data, total_steps,
//             arrival_s, scale_factor; or 9: ..., needs_data, total_steps, scale_factor, priority,
//             SLO, arrival_s. Philly arrivals and sizes, models and steps assigned by its authors.
//   muri      CSV: num_gpu, submit_time and duration in ms, model_name
//   tiresias  CSV: num_gpu, submit_time and duration in s, model_name
//   alibaba   CSV of GPU pods (2023): num_gpu, gpu_milli, creation_time, deletion_time and
//             scheduled_time in s; part of a GPU counts as a whole one; pods without GPU or end are
//             skipped
//   swf       18 columns: submit 2, run time 4, processors 5 (or those asked for, 8); processors
//             count as GPUs; jobs without run time or processors are skipped
//
// Traffic is never traced. A model that the trace names and model_catalogue.h has is taken, others
// are drawn from the mix by the seed; Workload::provenance says so. Arrivals begin at 0.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/cluster_spec.h"
#include "cluster/job.h"

namespace jige::cluster {

inline constexpr int64_t kTraceGpusMax = 1'000'000;  // of a job

enum class TraceFormat : uint8_t { kGavel, kMuri, kTiresias, kAlibaba, kSwf };
inline constexpr int kTraceFormatCount = 5;
std::string_view trace_format_name(TraceFormat format);

// What the text looks like. Fails with kUnsupported, naming `where` and the formats.
Result<TraceFormat> guess_trace_format(std::string_view text, std::string_view where);

struct TraceOptions {
  TraceFormat format = TraceFormat::kGavel;
  int64_t jobs_max = 1'000'000;  // the rest of the file is left unread
  std::vector<double> models;    // mix for jobs whose model is not known
  uint64_t seed = 1;
};

// Fails with kCorrupt, naming `where`, the line, the field and its value.
Result<Workload> read_trace(std::string_view text, std::string_view where,
                            const TraceOptions& options, const ClusterSpec& spec);

}  // namespace jige::cluster
