// Whose weight gradients a run skips: those of rows of weights that hardly move on any more.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

// What becomes of rows whose gradient a step skips.
enum class SkipMode {
  kFreeze,  // weights and moments stay as they are
  kScale,   // the gradient is zero there, and in the other steps as much larger, so that its mean
            // over steps stays what it is
};
std::vector<std::string> skip_mode_names();  // in the order of SkipMode
Result<SkipMode> parse_skip_mode(std::string_view name);

struct RowGateOptions {
  double most = 0.5;  // the probability at most with which a step skips a group
  SkipMode mode = SkipMode::kFreeze;
  // How straight a group's weights still move at most where it is skipped at all (row_gate.h): 1 is
  // all in one direction.
  double below = 0.8;
  int64_t rows = 128;    // of a group
  int64_t warmup = 100;  // first steps that skip nothing
  int64_t refresh = 20;  // every so many steps one skips nothing; 0: never
  double rise = 0.05;    // nothing is skipped while the loss is by this part above its lowest
};

// The part that decides results: all of it.
Json identity_json(const RowGateOptions& options);

}  // namespace jige::train
