// What `jige plan rings` says about mixtures of rings (--rings N), rounds of an all-to-all,
// double trees and files of NCCL and MSCCL.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "plan/msccl_export.h"
#include "plan/nccl_export.h"
#include "plan/ring_mix_planner.h"
#include "plan/round_planner.h"
#include "plan/tree_planner.h"

namespace jige::cli {

// Cells of a finalist beside the chosen one, by collectives where these chose; 0: not run.
struct ByCollective {
  ByCollective(double of_chosen, double of_this) : chosen(of_chosen), rated(of_this) {}
  // GB/s, "-" where it was not run.
  std::string rate() const;
  // How many times as fast the chosen one is, `by_transfers` where transfers chose.
  std::string times(double by_transfers) const;

  double chosen, rated;
};

std::string ring_mix_report(const plan::RingProblem& problem, const plan::RingMixPlan& plan,
                            std::string_view source);

std::string rounds_report(const plan::RingProblem& problem, const plan::RoundPlan& plan,
                          std::string_view source);

// `message_bytes`: the size that was asked about; `ring_rate` in GB/s.
std::string trees_report(const plan::RingProblem& problem, const plan::TreePlan& plan,
                         double message_bytes, double ring_rate);

std::string nccl_report(const plan::NcclExport& out, std::string_view path);

std::string msccl_report(const plan::MscclExport& out, std::string_view path);

}  // namespace jige::cli
