#include "cluster/colocation.h"

#include <algorithm>

namespace jige::cluster {

int32_t Colocation::type_of(const Job& job, int32_t nodes) const {
  const std::string& model = models_[static_cast<size_t>(job.model)];
  const int32_t type = table_.type_of(model, job.gpus, nodes);
  return type >= 0 ? type : table_.type_of(model, 1, 1);
}

double Colocation::share(const Job& job, const Job& other, int32_t nodes) const {
  const int32_t type = type_of(job, nodes), beside = type_of(other, nodes);
  if (type < 0 || beside < 0) return 0;
  return std::min(table_.share(type, beside), 1.0);
}

bool Colocation::compatible(const Job& job, const Job& other, int32_t nodes) const {
  const double mine = share(job, other, nodes), theirs = share(other, job, nodes);
  return std::min(mine, theirs) >= share_min && mine + theirs >= sum_min;
}

}  // namespace jige::cluster
