#include "sim/serve_plan_check.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace jige::sim {
namespace {

Status check_positive(std::string_view name, double value) {
  if (value > 0 && std::isfinite(value)) return {};
  return fail(Code::kInvalidArgument, "{} is {}; it must be above 0", name, value);
}

Status check_bounds(const ServeBounds& bounds) {
  for (const auto& [name, bound] : {std::pair{"bound of ttft", bounds.ttft_s},
                                    {"bound of itl", bounds.itl_s},
                                    {"bound of tpot", bounds.tpot_s},
                                    {"bound of e2e", bounds.e2e_s}}) {
    if (bound) JIGE_DO(check_positive(name, *bound));
  }
  if (!(bounds.quantile > 0 && bounds.quantile < 1)) {
    return fail(Code::kInvalidArgument, "the quantile of bounds is {}; it must be in 0..1",
                bounds.quantile);
  }
  if (bounds.margin >= 0 && bounds.margin < 1) return {};
  return fail(Code::kInvalidArgument, "the margin of bounds is {}; it must be at least 0, below 1",
              bounds.margin);
}

Status check_load(const ServeLoad& load) {
  if (load.requests.empty()) {
    return fail(Code::kInvalidArgument, "there are no requests to plan for; give one at least");
  }
  StepFeatures one;
  one.add(0, 1, 1);
  JIGE_DO(check_positive("time of an iteration in seconds", load.step.seconds(one)));
  JIGE_DO(check_positive("blocks of the cache", load.pool.block_count));
  if (load.users < 0 || load.rate_per_s < 0 || (load.users > 0 && load.rate_per_s > 0)) {
    return fail(Code::kInvalidArgument, "{} users and {} requests a second; give one of them",
                load.users, load.rate_per_s);
  }
  const int64_t room = int64_t{load.pool.block_count} * load.pool.block_tokens;
  for (const RequestShape& shape : load.requests) {
    const int64_t prompt = shape.prompt_tokens, output = shape.output_tokens;
    if (prompt < 1 || output < 1 || std::max(prompt, output) > kLengthMax) {
      return fail(Code::kInvalidArgument, "a request of {} + {} tokens; both must be in 1..{}",
                  prompt, output, kLengthMax);
    }
    if (prompt + output <= room) continue;
    return fail(Code::kExhausted,
                "a request of {} + {} tokens has no room in a cache of {}; give it more, or leave "
                "such requests out",
                prompt, output, room);
  }
  return {};
}

}  // namespace

Status check_serve_plan_request(const ServePlanRequest& request) {
  JIGE_DO(check_load(request.load));
  JIGE_DO(check_bounds(request.bounds));
  JIGE_DO(check_positive("answers at once", request.batch_requests_max));
  JIGE_DO(check_positive("tokens of an iteration", request.batch_tokens_max));
  JIGE_DO(check_positive("simulations", request.simulations_max));
  if (!request.policies.empty()) return {};
  return fail(Code::kInvalidArgument, "there are no policies to choose from; give one at least");
}

}  // namespace jige::sim
