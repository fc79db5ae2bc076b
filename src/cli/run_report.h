// A training run as one HTML page that needs nothing else: no script, no files, no network.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/run_log.h"
#include "train/pipeline_record.h"

namespace jige::cli {

// `record`: of runs by a schedule. Fails as view_pipeline.
Result<std::string> run_report_html(const std::string& title, const RunLog& log,
                                    const std::optional<train::PipelineRecord>& record);

}  // namespace jige::cli
