// Place: which rank this process is, from flags or from the launcher that started it.
//
// Threads: reads the environment; before other threads change it.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace jige::comm {

struct Place {
  int rank = 0;
  int world = 1;
  std::string source;  // "flags", "SLURM_PROCID", …
};

inline constexpr int kWorldMax = 4096;

// What srun (SLURM_PROCID, SLURM_NTASKS), mpirun (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE) or
// another launcher (PMI_RANK, PMI_SIZE) says; nothing where none has started this process. Fails
// with kInvalidArgument when it says half of it, or nonsense. The innermost launcher counts: Open
// MPI's, then PMI's, then Slurm's.
Result<std::optional<Place>> place_from_environment();

// Fails with kInvalidArgument unless 0 <= rank < world <= kWorldMax.
Status check_place(const Place& place);

}  // namespace jige::comm
