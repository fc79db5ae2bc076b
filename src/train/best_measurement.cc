#include "train/best_measurement.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "train/report.h"

namespace jige::train {

Json BestMeasurement::to_json() const { return {{"cost", cost}, {"step", step}, {"since", since}}; }

Result<BestMeasurement> BestMeasurement::from_json(const Json& json, const std::string& where) {
  BestMeasurement best;
  JIGE_TRY(best.cost, get_number(json, "cost", where));
  JIGE_TRY(best.step, get_int(json, "step", where));
  JIGE_TRY(best.since, get_int(json, "since", where));
  if (std::isfinite(best.cost) && best.step >= 0 && best.since >= 0) return best;
  return fail(Code::kInvalidArgument, "{}: field \"best\" is {}, which no measurement gives", where,
              dump_json(json));
}

double cost_of(const EvalInfo& info) { return info.rewards ? -info.rewards->reward : info.loss; }

bool note_measurement(const EvalInfo& info, std::optional<BestMeasurement>& best) {
  const double cost = cost_of(info);
  if (std::isfinite(cost) && (!best || cost < best->cost)) {
    best = BestMeasurement{.cost = cost, .step = info.step};
    return true;
  }
  if (best) ++best->since;
  return false;
}

}  // namespace jige::train
