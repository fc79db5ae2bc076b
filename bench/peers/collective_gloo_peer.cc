// All-reduces of floats by Gloo over TCP, as `jige bench collective` times them: mean microseconds
// of an operation, averaged over ranks, out of place. Starts its ranks itself; rank 0 prints one
// line of JSON.
//
//   g++ -O2 -std=c++17 collective_gloo_peer.cc -lgloo -lpthread -o peer
//   ./peer RANKS HOST FOLDER default|ring WARMUP ITERATIONS BYTES…      (FOLDER is empty)
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using Options = gloo::AllreduceOptions;

struct Arguments {
  int ranks, warmup, iterations;
  std::string host, folder, algorithm;
  std::vector<size_t> sizes;
};

void reduce(const std::shared_ptr<gloo::Context>& context, const Arguments& args, float* in,
            float* out, size_t count) {
  Options options(context);
  options.setAlgorithm(args.algorithm == "ring" ? Options::Algorithm::RING
                                                : Options::Algorithm::UNSPECIFIED);
  options.setInput(in, count);
  options.setOutput(out, count);
  using Sum = void (*)(void*, const void*, const void*, size_t);
  options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
  gloo::allreduce(options);
}

double timed(const std::shared_ptr<gloo::Context>& context, const Arguments& args, float* in,
             float* out, size_t count) {
  for (int i = 0; i < args.warmup; ++i) reduce(context, args, in, out, count);
  gloo::BarrierOptions barrier(context);
  gloo::barrier(barrier);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < args.iterations; ++i) reduce(context, args, in, out, count);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / args.iterations;
}

int run_rank(int rank, const Arguments& args) {
  auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(args.host.c_str()));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, args.ranks);
  gloo::rendezvous::FileStore store(args.folder);
  context->connectFullMesh(store, device);
  if (rank == 0) std::printf("{\"peer\": \"Gloo, %s\", \"rows\": [", args.algorithm.c_str());
  for (size_t s = 0; s < args.sizes.size(); ++s) {
    const size_t count = args.sizes[s] / 4;
    std::vector<float> in(count);
    std::vector<float> out(count);
    for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(rank + static_cast<int>(i % 5));
    float own = static_cast<float>(timed(context, args, in.data(), out.data(), count));
    const int n = args.ranks;
    for (size_t i = 0; i < count; ++i) {
      if (out[i] != static_cast<float>(n * (n - 1) / 2 + n * static_cast<int>(i % 5))) return 3;
    }
    float sum = 0;
    reduce(context, args, &own, &sum, 1);
    if (rank == 0) {
      std::printf("%s{\"bytes\": %zu, \"time_us\": %.3f}", s > 0 ? ", " : "", 4 * count, sum / n);
    }
  }
  if (rank == 0) std::printf("]}\n");
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) return 2;
  Arguments args = {
      std::atoi(argv[1]), std::atoi(argv[5]), std::atoi(argv[6]), argv[2], argv[3], argv[4], {}};
  for (int a = 7; a < argc; ++a) args.sizes.push_back(std::strtoull(argv[a], nullptr, 10));
  for (int r = 0; r < args.ranks; ++r) {
    if (fork() == 0) _exit(run_rank(r, args));
  }
  int failed = 0;
  for (int r = 0; r < args.ranks; ++r) {
    int state = 0;
    wait(&state);
    failed |= state;
  }
  return failed == 0 ? 0 : 3;
}
