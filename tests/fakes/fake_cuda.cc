// A library that answers like the CUDA driver, for tests on machines without a GPU. Device memory
// is memory of the process, a stream is a thread. Streams and events carry the moments at which
// their work would end if no thread ever woke late: whoever is late hurries until he is back in
// time, so rates hold on a busy machine. What it shows is in the environment variable
// JIGE_FAKE_CUDA, words separated by spaces:
//
//   gpu=ADDRESS,RATE[,RATE]  the next GPU, and the GB/s of its copy engine (0: as fast as memcpy)
//                       and of its kernels (the same, if they are not given)
//   bridge=RATE         GB/s that all copies share
//   nopeer=FROM,TO      FROM reaches no memory of TO
//   fail=FUNCTION,CODE  that function returns the code
//   flip=N              the N-th copy in a stream gets a byte wrong
//   stall=N             the N-th copy in a stream never ends
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNotReady = 600;
constexpr size_t kPieceBytes = 128 << 10;

// Something that carries so many bytes a second, in turns of a piece.
class Pace {
 public:
  explicit Pace(double gb_per_s) : gb_per_s_(gb_per_s) {}
  // The moment at which it has carried them, if they come at `from`.
  Clock::time_point carry(size_t bytes, Clock::time_point from) {
    if (gb_per_s_ <= 0) return from;
    const std::lock_guard lock(mutex_);
    const auto takes =
        std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / gb_per_s_));
    free_at_ = std::max(free_at_, from) + takes;
    return free_at_;
  }

 private:
  double gb_per_s_;
  std::mutex mutex_;
  Clock::time_point free_at_;
};

struct Gpu {
  std::string address;
  std::unique_ptr<Pace> engine, kernels;
  std::set<const Gpu*> reaches;  // whose memory it was let into
};

// A module, and its one function: of the GPU in whose context it was loaded.
struct Module {
  Gpu* gpu;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;  // numbers of records asked for and come by
  Clock::time_point at;                // of the last that came by
};

class Stream {
 public:
  explicit Stream(Gpu* gpu) : gpu_(gpu), thread_([this] { run(); }) {}
  ~Stream() {
    add(nullptr);
    thread_.join();
  }
  Gpu* gpu() const { return gpu_; }
  // When its work so far ends, for that work alone, which begins no earlier than it was asked for.
  Clock::time_point at;
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !work_.empty(); });
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  Gpu* gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

std::vector<Gpu> gpus;
std::unique_ptr<Pace> bridge;
std::set<std::pair<unsigned, unsigned>> no_peer;
std::string failing;
int failure = 0, flip = 0, stall = 0;
std::atomic<int> copies{0};
std::atomic<int> held{0};  // allocations, streams and events not given back
thread_local Gpu* current = nullptr;
// By address; no GPU: the host's. Never taken down: what a stalled copy holds is the driver's until
// the end, and no leak.
using Blocks = std::map<unsigned long long, std::pair<size_t, Gpu*>>;
Blocks& memory = *new Blocks;
std::mutex memory_mutex;

void read_script() {
  gpus.clear();
  no_peer.clear();
  failing.clear();
  flip = stall = copies = 0;
  double shared = 0;
  const char* script = std::getenv("JIGE_FAKE_CUDA");
  std::istringstream words(script ? script : "");
  for (std::string word; words >> word;) {
    char name[100] = {};
    double rate = 0, kernels = 0;
    unsigned from = 0, to = 0;
    const int fields = std::sscanf(word.c_str(), "gpu=%99[^,],%lf,%lf", name, &rate, &kernels);
    if (fields >= 2) {
      gpus.push_back({name,
                      std::make_unique<Pace>(rate),
                      std::make_unique<Pace>(fields == 3 ? kernels : rate),
                      {}});
    } else if (std::sscanf(word.c_str(), "nopeer=%u,%u", &from, &to) == 2) {
      no_peer.insert({from, to});
    } else if (std::sscanf(word.c_str(), "fail=%99[^,],%d", name, &failure) == 2) {
      failing = name;
    } else {
      (void)std::sscanf(word.c_str(), "bridge=%lf", &shared);
      (void)std::sscanf(word.c_str(), "flip=%d", &flip);
      (void)std::sscanf(word.c_str(), "stall=%d", &stall);
    }
  }
  bridge = std::make_unique<Pace>(shared);
}

int done(const char* function) { return failing == function ? failure : 0; }

int copy_later(void* to, const void* from, size_t bytes, Stream* stream, Pace* pace = nullptr) {
  if (!pace) pace = stream->gpu()->engine.get();
  const int number = ++copies;
  const bool stalls = number == stall, flips = number == flip;
  const Clock::time_point asked = Clock::now();
  stream->add([=] {
    while (stalls) std::this_thread::sleep_for(std::chrono::seconds(1));
    stream->at = std::max(stream->at, asked);
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      const size_t piece = std::min(kPieceBytes, bytes - at);
      stream->at = std::max(bridge->carry(piece, stream->at), pace->carry(piece, stream->at));
      std::this_thread::sleep_until(stream->at);
      std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, piece);
    }
    if (flips) static_cast<char*>(to)[bytes / 2] ^= 1;
  });
  return 0;
}

void remember(unsigned long long pointer, size_t bytes, Gpu* gpu) {
  const std::lock_guard lock(memory_mutex);
  memory[pointer] = {bytes, gpu};
}
void forget(unsigned long long pointer) {
  const std::lock_guard lock(memory_mutex);
  memory.erase(pointer);
}
// Whether a kernel on the GPU may touch all of these bytes.
bool reaches(const Gpu* gpu, unsigned long long pointer, size_t bytes) {
  const std::lock_guard lock(memory_mutex);
  auto after = memory.upper_bound(pointer);
  if (after == memory.begin()) return false;
  const auto& [begin, block] = *--after;
  const auto& [size, owner] = block;
  if (pointer + bytes > begin + size) return false;
  return !owner || owner == gpu || gpu->reaches.contains(owner);
}

void* address(unsigned long long pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

extern "C" {

int fake_cuda_held() { return held; }

int cuInit(unsigned) {
  read_script();
  return done("cuInit");
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 100   ? "CUDA_ERROR_NO_DEVICE"
          : code == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                        : nullptr;
  return *name ? 0 : 1;
}
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(gpus.size());
  return done("cuDeviceGetCount");
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "%s",
                gpus.at(static_cast<size_t>(device)).address.c_str());
  return 0;
}
int cuDeviceCanAccessPeer(int* can, int from, int to) {
  *can = no_peer.contains({static_cast<unsigned>(from), static_cast<unsigned>(to)}) ? 0 : 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &gpus.at(static_cast<size_t>(device));
  ++held;
  return done("cuDevicePrimaryCtxRetain");
}
int cuDevicePrimaryCtxRelease_v2(int) {
  --held;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = static_cast<Gpu*>(context);
  return 0;
}
int cuCtxEnablePeerAccess(void* context, unsigned) {
  if (!current) return 201;
  const int code = done("cuCtxEnablePeerAccess");
  if (code == 0 || code == 704) current->reaches.insert(static_cast<Gpu*>(context));
  return code;
}
int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  if (const int code = done("cuMemAlloc")) return code;
  *pointer = reinterpret_cast<unsigned long long>(std::aligned_alloc(256, (bytes + 255) & ~255ul));
  remember(*pointer, bytes, current);
  ++held;
  return 0;
}
int cuMemFree_v2(unsigned long long pointer) {
  forget(pointer);
  std::free(address(pointer));
  --held;
  return 0;
}
int cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (const int code = done("cuMemHostAlloc")) return code;
  *pointer = std::aligned_alloc(256, (bytes + 255) & ~255ul);
  remember(reinterpret_cast<unsigned long long>(*pointer), bytes, nullptr);
  ++held;
  return 0;
}
int cuMemFreeHost(void* pointer) {
  forget(reinterpret_cast<unsigned long long>(pointer));
  std::free(pointer);
  --held;
  return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  std::memcpy(address(to), from, bytes);
  return done("cuMemcpyHtoD");
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  std::memcpy(to, address(from), bytes);
  return done("cuMemcpyDtoH");
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
  return copy_later(address(to), from, bytes, static_cast<Stream*>(stream));
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  return copy_later(to, address(from), bytes, static_cast<Stream*>(stream));
}
int cuMemcpyPeerAsync(unsigned long long to, void*, unsigned long long from, void*, size_t bytes,
                      void* stream) {
  return copy_later(address(to), address(from), bytes, static_cast<Stream*>(stream));
}
int cuStreamCreate(void** stream, unsigned) {
  if (!current) return 201;  // CUDA_ERROR_INVALID_CONTEXT
  *stream = new Stream(current);
  ++held;
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  --held;
  return 0;
}
// As CUDA: an event that was never recorded is waited for by nobody.
int cuStreamWaitEvent(void* stream, void* pointer, unsigned) {
  Event* event = static_cast<Event*>(pointer);
  uint64_t wanted = 0;
  {
    const std::lock_guard lock(event->mutex);
    wanted = event->recorded;
  }
  auto* waiting = static_cast<Stream*>(stream);
  waiting->add([=] {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&] { return event->reached >= wanted; });
    waiting->at = std::max(waiting->at, event->at);
  });
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  ++held;
  return 0;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  --held;
  return 0;
}
int cuEventRecord(void* pointer, void* stream) {
  Event* event = static_cast<Event*>(pointer);
  uint64_t number = 0;
  {
    const std::lock_guard lock(event->mutex);
    number = ++event->recorded;
  }
  auto* recording = static_cast<Stream*>(stream);
  recording->add([=] {
    const std::lock_guard lock(event->mutex);
    event->reached = std::max(event->reached, number);
    event->at = recording->at;
    event->changed.notify_all();
  });
  return done("cuEventRecord");
}
int cuEventQuery(void* pointer) {
  if (const int code = done("cuEventQuery")) return code;
  Event* event = static_cast<Event*>(pointer);
  std::unique_lock lock(event->mutex);
  // Who asks again and again leaves the processor to the threads that stand for GPUs.
  const bool over = event->changed.wait_for(lock, std::chrono::microseconds(100),
                                            [&] { return event->reached >= event->recorded; });
  return over ? 0 : kNotReady;
}

// Any image will do, but an empty one.
int cuModuleLoadData(void** module, const void* image) {
  if (!current || !image) return 201;
  *module = new Module{current};
  ++held;
  return done("cuModuleLoadData");
}
int cuModuleUnload(void* module) {
  if (static_cast<Module*>(module)->gpu != current) return 400;  // CUDA_ERROR_INVALID_HANDLE
  delete static_cast<Module*>(module);
  --held;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return std::strcmp(name, "jige_copy") == 0 ? done("cuModuleGetFunction") : 500;  // NOT_FOUND
}
// The copy kernel alone: to, from, 16-byte words. What a GPU cannot reach is an error at once.
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned, void* stream, void** parameters, void**) {
  Gpu* gpu = static_cast<Module*>(function)->gpu;
  if (gpu != current || static_cast<Stream*>(stream)->gpu() != gpu) return 400;
  if (x == 0 || y != 1 || z != 1 || threads == 0 || threads > 1024) return 1;
  const auto to = *static_cast<unsigned long long*>(parameters[0]);
  const auto from = *static_cast<unsigned long long*>(parameters[1]);
  const size_t bytes = *static_cast<unsigned long long*>(parameters[2]) * 16;
  if (to % 16 != 0 || from % 16 != 0) return 716;  // CUDA_ERROR_MISALIGNED_ADDRESS
  if (!reaches(gpu, to, bytes) || !reaches(gpu, from, bytes)) return 700;
  if (const int code = done("cuLaunchKernel")) return code;
  return copy_later(address(to), address(from), bytes, static_cast<Stream*>(stream),
                    gpu->kernels.get());
}

}  // extern "C"
