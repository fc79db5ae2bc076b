// How many requests a server says it has, of what it answers to GET /metrics.
//
// Read are the gauges of requests that run and that wait of a few servers (kGauges in
// load_report.cc); those of several models or engines are added up. Lines that are none are passed
// over: what is not understood is not told.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "plan/server_load.h"

namespace jige::api {

// Nothing where no requests that run are told of. Counts are finite, not negative, and at most 1e9.
std::optional<plan::LoadReport> read_load_report(std::string_view metrics);

}  // namespace jige::api
