// jige-mpi-links with a fault: rank 1 spoils a byte of what is checked on its way out.
#include "profile/mpi/mpi_rank.h"

int main(int argc, char** argv) {
  jige::profile::MpiRankOptions options;
  options.spoil = [](int rank, std::span<std::byte> bytes) {
    if (rank == 1) bytes[bytes.size() / 2] ^= std::byte{1};
  };
  return jige::profile::mpi_rank_main(argc, argv, options);
}
