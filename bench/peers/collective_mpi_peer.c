// All-reduces of floats by MPI, as `jige bench collective` times them: mean microseconds of an
// operation, averaged over ranks, out of place. Rank 0 prints one line of JSON.
//
//   mpicc -O2 collective_mpi_peer.c -o peer && mpirun … ./peer WARMUP ITERATIONS BYTES…
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

// Whether the sum over ranks of (rank + i % 5) is right everywhere.
static int all_right(const float* sums, long count, int world) {
  for (long i = 0; i < count; ++i) {
    if (sums[i] != (float)(world * (world - 1) / 2 + world * (int)(i % 5))) return 0;
  }
  return 1;
}

static double timed(float* in, float* out, long count, int warmup, int iterations) {
  for (int i = 0; i < warmup; ++i) MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM,
                                                 MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM,
                                                     MPI_COMM_WORLD);
  return (MPI_Wtime() - begin) * 1e6 / iterations;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, world = 0, length = 0;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Get_library_version(version, &length);
  version[19] = '\0';  // "Open MPI v4.1.4, package …"
  for (int i = 0; i < 19; ++i) {
    if (version[i] == ',' || version[i] == '"') version[i] = '\0';
  }
  if (rank == 0) printf("{\"peer\": \"%s\", \"rows\": [", version);
  for (int a = 3; a < argc; ++a) {
    const long count = atol(argv[a]) / 4;
    float* in = malloc(4 * (size_t)count + 4);
    float* out = malloc(4 * (size_t)count + 4);
    if (in == NULL || out == NULL) return 2;
    for (long i = 0; i < count; ++i) in[i] = (float)(rank + (int)(i % 5));
    double own = timed(in, out, count, atoi(argv[1]), atoi(argv[2])), sum = 0;
    if (!all_right(out, count, world)) return 3;
    MPI_Reduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      printf("%s{\"bytes\": %ld, \"time_us\": %.3f}", a > 3 ? ", " : "", 4 * count, sum / world);
    }
    free(in);
    free(out);
  }
  if (rank == 0) printf("]}\n");
  return MPI_Finalize();
}
