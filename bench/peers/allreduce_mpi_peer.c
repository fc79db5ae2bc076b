// MPI_Allreduce of MIB MiB of floats, REPEATS times after one to warm up; rank 0 prints a line of
// JSON with the seconds of each, of the slowest rank.
//
//   mpicc -O2 allreduce_mpi_peer.c -o peer && mpirun … ./peer MIB REPEATS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) return 2;
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const int count = atoi(argv[1]) << 18;
  const int repeats = atoi(argv[2]);
  float* in = malloc(sizeof(float) * (size_t)count);
  float* out = malloc(sizeof(float) * (size_t)count);
  if (count <= 0 || !in || !out) return 2;
  for (int i = 0; i < count; ++i) in[i] = (float)(rank + 1);
  if (rank == 0) printf("{\"peer\": \"Open MPI\", \"seconds\": [");
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), own, slowest;
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    own = MPI_Wtime() - begin;
    if (out[0] != world * (world + 1) / 2 || out[count - 1] != out[0]) return 3;
    MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0 && repeat > 0) printf("%s%.6f", repeat > 1 ? ", " : "", slowest);
  }
  if (rank == 0) printf("]}\n");
  free(in);
  free(out);
  return MPI_Finalize();
}
