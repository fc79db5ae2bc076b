// A planned ring as JSON, for the runtime and for people.
//
//   {"format": "jige.ring-plan", "version": 1, "topology": "box", "fingerprint": "…",
//    "rates": "simulated", "devices": ["gpu0", …],
//    "rings": [{"order": [0, 2, 1, 3], "weight": 1, "transfers": ["gpu0>gpu2:push", …]}],
//    "ring": {"order": ["gpu0", …], "transfers": ["gpu0>gpu2:push", …], "rate": 8, "half_width": 0,
//             "predicted": 8},
//    "alternatives": […], "bound": 8, "gap": 0, "proven": true, "unpromised": true,
//    "budget_ended": false,
//    "baselines": {"rank order": {…}, "single links": {…}, "constants": {…}},
//    "measured_sets": 380, "measuring_s": 10.2, "found_after_s": 6.5, "symmetries": 1152}
//
// `rings` is what collectives run (comm/ring_plan_file.h): orders of ranks, which are places in
// `devices`, and parts of the data. Where several were planned there is beside it
//    "mix": {"rate": 11, "half_width": 0, "predicted": 11, "promised": 11.5, "unpromised": true,
//            "compared": [{"name": "best ring", "rings": […], "rate": 8, …}, …]}
// with the GB/s that all of them carry together. Where an all-to-all was planned:
//    "rounds": [{"to": [1, 2, 3, 0], "transfers": ["gpu0>gpu1:push", …], "rate": 6}, …],
//    "all_to_all": {"gb_per_s": 6, "seconds": 0.5, "predicted_s": 0.5, "bound_s": 0.4,
//                   "unpromised": true, "compared": [{"name": "shifted", "rounds": […], …}]}
// with seconds for blocks of 1 GB. Where double trees were planned for small messages:
//    "trees": {"order": [2, 0, 1, 3], "depth": 2, "parents": [[1, 3, 1, -1], …], "rate": 5,
//              "latency_us": 10, "crossover_bytes": 65536, "compared": […]}
// with the ranks at the places of the trees, the place above each in both (-1: the root), and the
// size from which rings are predicted to be faster (absent: never).
//
// Rates are GB/s of every edge while all run; "collective" is the same in an all-reduce, where one
// was run. Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/json.h"
#include "plan/ring_mix_planner.h"
#include "plan/ring_planner.h"
#include "plan/round_planner.h"
#include "plan/tree_planner.h"

namespace jige::plan {

// `mix` may be null: then the one ring carries all.
Json ring_plan_to_json(const RingProblem& problem, const RingPlan& plan, std::string_view source,
                       const RingMixPlan* mix = nullptr);

// Adds the rounds of an all-to-all to the plan of the same problem.
void add_rounds_to_json(Json& json, const RingProblem& problem, const RoundPlan& plan);

// Adds double trees, beside rings of `ring_rate` GB/s.
void add_trees_to_json(Json& json, const TreePlan& plan, double ring_rate);

}  // namespace jige::plan
