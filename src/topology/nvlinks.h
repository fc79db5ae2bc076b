// NVLinks of a machine, whoever tells of them: which components are joined, at which rates.
//
//   NvlinkRates rates;
//   rates[{gpu0, gpu1}] += 4 * nvlink_gb_per_s(3);       // a direction, all its links together
//   rates[{gpu0, nvswitch(description)}] += …            // all switches count as one
//   join_nvlinks(description, rates);
//
// What one end alone tells holds for both directions. The links stand before all others of the
// description, so that between equal routes they are taken.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "topology/description.h"

namespace jige::topology {

using NvlinkRates = std::map<std::pair<int32_t, int32_t>, double>;  // GB/s, by components

// Each direction of one NVLink of a version, GB/s; kUnlimited where the version is not known.
double nvlink_gb_per_s(int32_t version);
// The same by the compute capability of its GPU, such as 80; 86 has slower lanes of version 3.
double nvlink_gb_per_s_of_sm(int32_t sm);

// The switch that stands for all NVSwitches, made when it is first asked for.
int32_t nvswitch(Description& description);

void join_nvlinks(Description& description, const NvlinkRates& rates);

}  // namespace jige::topology
