#include "sim/serve_replanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace jige::sim {
namespace {

std::vector<RequestShape> shapes_of(const plan::RecentLoad& recent, bool at_a_rate) {
  std::vector<RequestShape> shapes;
  // As many of both, the last ones.
  const size_t count =
      at_a_rate ? std::min(recent.ended.size(), recent.arrivals_s.size()) : recent.ended.size();
  const size_t first = recent.ended.size() - count;
  for (size_t i = 0; i < count; ++i) {
    const plan::EndedRequest& ended = recent.ended[first + i];
    RequestShape shape{.prompt_tokens = std::max<int64_t>(ended.prompt_tokens, 1),
                       .output_tokens = std::max<int64_t>(ended.answer_tokens, 1)};
    if (at_a_rate) {
      const size_t first_arrival = recent.arrivals_s.size() - count;
      shape.arrival_s = recent.arrivals_s[first_arrival + i] - recent.arrivals_s[first_arrival];
    }
    shapes.push_back(shape);
  }
  std::ranges::sort(shapes, {}, &RequestShape::arrival_s);  // clients may overtake each other
  return shapes;
}

double gain_of(const ServeLoad& load, const ServePrediction& one, const ServePrediction& before) {
  const double gain = load.rate_per_s > 0 ? before.e2e_s.mean / one.e2e_s.mean
                                          : one.requests_per_s / before.requests_per_s;
  return gain - 1;
}

std::string carried_text(const ServePrediction& one) {
  return fmt::format("{:.3g} requests a second, answers in {:.3g} s, 99 % in {:.3g} s",
                     one.requests_per_s, one.e2e_s.mean, one.e2e_s.p99);
}

}  // namespace

std::string ServeReplan::text() const {
  const std::string before = settings_text(plan.usual.settings);
  switch (outcome) {
    case plan::ReplanOutcome::kSwitched:
      return fmt::format("{} in place of {}: {}; before {}{}", settings_text(plan.chosen->settings),
                         before, carried_text(*plan.chosen), carried_text(plan.usual),
                         plan.usual.keeps_bounds()
                             ? ""
                             : fmt::format(", beyond the bound of {}", plan.usual.tightest));
    case plan::ReplanOutcome::kKept:
      if (plan.chosen->settings == plan.usual.settings) {
        return fmt::format("{} stays, the best for such requests: {}", before,
                           carried_text(plan.usual));
      }
      return fmt::format("{} stays: {}; the best, {}, is better by {:.1f} % only", before,
                         carried_text(plan.usual), settings_text(plan.chosen->settings),
                         100 * gain);
    default:
      break;
  }
  if (!plan.nearest || !(plan.nearest->ratio < std::numeric_limits<double>::infinity())) {
    return fmt::format("{} stays: nothing carries {:.3g} requests a second", before,
                       request.load.rate_per_s);
  }
  return fmt::format(
      "{} stays: no setting keeps the bounds for such requests; {} comes closest, with {} of "
      "{:.3g} "
      "times the bound",
      before, settings_text(plan.nearest->settings), plan.nearest->tightest, plan.nearest->ratio);
}

Json ServeReplan::to_json(const ServePlanFile& planned) const {
  return serve_plan_to_json(request, plan, {planned.iteration, planned.profiled});
}

Result<ServeReplan> replan_serving(const ServeReplanInput& input) {
  const ServePlanFile& planned = input.planned;
  if (!planned.search) {
    return fail(Code::kInvalidArgument,
                "the plan does not say what it was searched among; make it again with "
                "`jige plan serve -o`");
  }
  if (input.recent.ended.empty()) {
    return fail(Code::kInvalidArgument, "there are no requests to plan for");
  }
  ServeReplan found;
  ServePlanRequest& request = found.request;
  request.load.step = planned.search->step;
  request.load.users = planned.users;
  const bool at_a_rate = planned.rate_per_s > 0;
  if (at_a_rate) {
    const double rate_per_s = input.recent.rate_per_s();
    request.load.rate_per_s = rate_per_s > 0 ? rate_per_s : planned.rate_per_s;
  }
  request.load.requests = shapes_of(input.recent, at_a_rate);
  request.load.pool.block_count = input.block_count;
  request.load.cancel = input.cancel;
  request.bounds = planned.bounds;
  request.policies = planned.search->policies;
  request.batch_requests_max = planned.search->batch_requests_max;
  request.batch_tokens_max = planned.search->batch_tokens_max;
  request.usual = input.settings;
  JIGE_TRY(found.plan, plan_serving(request));
  if (!found.plan.chosen) {
    found.outcome = plan::ReplanOutcome::kInfeasible;
    return found;
  }
  const ServePrediction& before = found.plan.usual;
  found.gain = gain_of(request.load, *found.plan.chosen, before);
  const bool other = found.plan.chosen->settings != before.settings;
  if (other && (!before.keeps_bounds() || found.gain >= kWorthSwitching)) {
    found.outcome = plan::ReplanOutcome::kSwitched;
  }
  return found;
}

}  // namespace jige::sim
