#include "plan/ring_plan_json.h"

#include <nlohmann/json.hpp>

#include "topology/fingerprint.h"

namespace jige::plan {
namespace {

constexpr std::string_view kRingPlanFormat = "jige.ring-plan";
constexpr int64_t kRingPlanVersion = 1;

Json ring_to_json(const RingProblem& problem, const MeasuredRing& ring) {
  const topology::Topology& t = *problem.topology;
  Json order = Json::array(), transfers = Json::array();
  for (const topology::Transfer& transfer : ring_transfers(problem, ring.ring)) {
    order.push_back(t.component(transfer.src).name);
    transfers.push_back(topology::transfer_text(t, transfer));
  }
  Json json{{"order", std::move(order)},
            {"transfers", std::move(transfers)},
            {"rate", ring.rate},
            {"half_width", ring.half_width},
            {"predicted", ring.predicted}};
  if (ring.collective > 0) json["collective"] = ring.collective;
  return json;
}

Json rings_to_json(const RingProblem& problem, const std::vector<WeightedRing>& rings) {
  Json list = Json::array();
  for (const WeightedRing& ring : rings) {
    Json order = Json::array(), transfers = Json::array();
    for (const int32_t candidate : ring.ring) {
      order.push_back(problem.at(candidate).from);
      transfers.push_back(
          topology::transfer_text(*problem.topology, problem.at(candidate).transfer));
    }
    list.push_back({{"order", std::move(order)},
                    {"weight", ring.weight},
                    {"transfers", std::move(transfers)}});
  }
  return list;
}

Json mix_to_json(const RingProblem& problem, const MeasuredMix& mix) {
  Json json{{"name", mix.name},
            {"rings", rings_to_json(problem, mix.mix.rings)},
            {"rate", mix.rate},
            {"half_width", mix.half_width},
            {"predicted", mix.mix.predicted}};
  if (mix.collective > 0) json["collective"] = mix.collective;
  return json;
}

void add_mix(Json& json, const RingProblem& problem, const RingMixPlan& plan) {
  const MeasuredMix& best = plan.best.front();
  json["rings"] = rings_to_json(problem, best.mix.rings);
  Json mix = mix_to_json(problem, best);
  mix.erase("rings");
  if (plan.promised > 0) mix["promised"] = plan.promised;
  mix["unpromised"] = plan.unpromised;
  mix["measuring_s"] = plan.cost_s;
  mix["compared"] = Json::array();
  for (size_t i = 1; i < plan.best.size(); ++i) {
    mix["compared"].push_back(mix_to_json(problem, plan.best[i]));
  }
  json["mix"] = std::move(mix);
}

Json schedule_to_json(const RingProblem& problem, const MeasuredRounds& schedule) {
  Json rounds = Json::array();
  for (size_t r = 0; r < schedule.rounds.size(); ++r) {
    Json transfers = Json::array();
    for (const topology::Transfer& t : ring_transfers(problem, schedule.rounds[r])) {
      transfers.push_back(topology::transfer_text(*problem.topology, t));
    }
    rounds.push_back({{"to", round_targets(problem, schedule.rounds[r])},
                      {"transfers", std::move(transfers)},
                      {"rate", schedule.rates[r]}});
  }
  Json json{{"name", schedule.name},
            {"rounds", std::move(rounds)},
            {"gb_per_s", schedule.gb_per_s()},
            {"seconds", schedule.seconds},
            {"predicted_s", schedule.predicted_s}};
  if (schedule.collective > 0) json["collective"] = schedule.collective;
  return json;
}

}  // namespace

void add_rounds_to_json(Json& json, const RingProblem& problem, const RoundPlan& plan) {
  Json best = schedule_to_json(problem, plan.best.front());
  json["rounds"] = std::move(best["rounds"]);
  best.erase("rounds");
  best["bound_s"] = plan.bound_s;
  best["unpromised"] = plan.unpromised;
  best["measuring_s"] = plan.cost_s;
  best["compared"] = Json::array();
  for (size_t i = 1; i < plan.best.size(); ++i) {
    best["compared"].push_back(schedule_to_json(problem, plan.best[i]));
  }
  json["all_to_all"] = std::move(best);
}

void add_trees_to_json(Json& json, const TreePlan& plan, double ring_rate) {
  const auto to_json = [](const MeasuredTrees& trees) {
    Json made{{"name", trees.name},
              {"order", trees.trees.nodes},
              {"rate", trees.rate},
              {"half_width", trees.half_width},
              {"predicted", trees.trees.predicted}};
    if (trees.collective_s > 0) made["collective_s"] = trees.collective_s;
    return made;
  };
  Json best = to_json(plan.best.front());
  best["depth"] = plan.depth;
  best["parents"] = Json::array();
  for (const TreeShape& shape : double_tree_shape(plan.nodes)) {
    best["parents"].push_back(shape.parent);
  }
  best["latency_us"] = plan.latency_s * 1e6;
  if (const auto bytes = plan.crossover_bytes(ring_rate)) best["crossover_bytes"] = *bytes;
  // What is only predicted is left for collectives to measure.
  if (plan.measured_crossover_bytes) best["bytes_max"] = *plan.measured_crossover_bytes;
  if (plan.ring_collective_s > 0) best["ring_collective_s"] = plan.ring_collective_s;
  best["unpromised"] = plan.unpromised;
  best["compared"] = Json::array();
  for (size_t i = 1; i < plan.best.size(); ++i) best["compared"].push_back(to_json(plan.best[i]));
  json["trees"] = std::move(best);
}

Json ring_plan_to_json(const RingProblem& problem, const RingPlan& plan, std::string_view source,
                       const RingMixPlan* mix) {
  Json json{{"format", kRingPlanFormat},
            {"version", kRingPlanVersion},
            {"topology", problem.topology->name()},
            {"fingerprint", topology::fingerprint(problem.topology->description()).hash},
            {"rates", source},
            {"devices", Json::array()},
            {"rings", rings_to_json(problem, {{plan.best.front().ring, 1}})},
            {"ring", ring_to_json(problem, plan.best.front())},
            {"alternatives", Json::array()},
            {"bound", plan.bound},
            {"gap", plan.gap()},
            {"proven", plan.proven},
            {"unpromised", plan.unpromised},
            {"budget_ended", plan.budget_ended},
            {"baselines",
             {{"rank order", ring_to_json(problem, plan.rank_order)},
              {"single links", ring_to_json(problem, plan.single_link)},
              {"constants", ring_to_json(problem, plan.constants)}}},
            {"measured_sets", plan.counts.measured},
            {"measuring_s", plan.counts.cost_s},
            {"found_after_s", plan.found_after_s},
            {"symmetries", plan.symmetries},
            {"restarts", plan.restarts}};
  for (size_t i = 1; i < plan.best.size(); ++i) {
    json["alternatives"].push_back(ring_to_json(problem, plan.best[i]));
  }
  for (const int32_t component : problem.components) {
    json["devices"].push_back(problem.topology->component(component).name);
  }
  if (mix) add_mix(json, problem, *mix);
  return json;
}

}  // namespace jige::plan
