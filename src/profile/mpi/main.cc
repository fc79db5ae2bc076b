// jige-mpi-links: what mpirun starts for `jige profile links --mpi`. An argument for each rank.
#include "profile/mpi/mpi_rank.h"

int main(int argc, char** argv) { return jige::profile::mpi_rank_main(argc, argv, {}); }
