// Benchmarks of this machine and of Jige on it.
//
// Each is run once to warm up, then again and again for a given time, three times at least; the
// median is reported, with the fastest and the slowest run.
// Shares compare with the machine's own rates: matrix products with that of the vector units and
// reading with that of the memory, as measured just before; models with those of products or of
// the memory, measured in turns with them, since a machine that others use changes its speed
// within seconds.
// Threads: one benchmark at a time, on all threads of the device.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/machine_rates.h"
#include "formats/model_config.h"
#include "ops/linear.h"
#include "serve/layer_fit.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"

namespace jige::cli {

struct Timing {
  double median_s = 0;
  double fastest_s = 0;
  double slowest_s = 0;
  int64_t run_count = 0;
};

// Runs `work` as the header says, for `seconds`. Fails as the work does.
Result<Timing> time_runs(double seconds, const std::function<Status()>& work);

// What work is compared with, once.
struct Reference {
  const char* name = "";  // "of reading memory"
  double units = 0;       // of a run
  std::function<void()> run;
  // Called before and after, where threads of another team spin for a while after their last loop;
  // none where there are no such threads.
  std::function<void()> pause;
};

// Runs of work in turns with the reference, which takes as long each time.
struct TimingInTurns {
  Timing work;
  // What the work reaches of the rate of the reference in the same turn: median and quartiles.
  double share = 0, share_low = 0, share_high = 0;
};

// `units`: of the work, in one run. Fails as the work does.
Result<TimingInTurns> time_in_turns(double seconds, double units,
                                    const std::function<Status()>& work,
                                    const Reference& reference);

// What a benchmark found: amount / time, with the spread of the runs.
struct Measurement {
  std::string name;    // "decode"
  std::string detail;  // shapes and types
  double value = 0;
  double slowest = 0;
  double fastest = 0;
  std::string unit;      // "tokens/s"
  double share = 0;      // of the machine's rate; 0: none
  double share_low = 0;  // quartiles, where the rate was measured in turns; else 0
  double share_high = 0;
  std::string share_of;   // "of reading memory"
  double unit_bytes = 0;  // that one of `unit` reads of what it is compared with; 0: not counted
};

// A measurement of `amount` units a run.
Measurement make_measurement(std::string name, std::string detail, double amount, std::string unit,
                             const Timing& timing);

Json measurement_json(const Measurement& measurement);

struct BenchOptions {
  formats::ModelConfig config;
  DType dtype = DType::kF32;
  ops::WeightFormat format = ops::WeightFormat::kCompute;  // of the weights of bench_inference
  std::optional<DType> kv_dtype;                           // of its cache; none: dtype
  int64_t context = 256;        // tokens of a sequence in training and attention
  int64_t batch_tokens = 2048;  // of a training step
  int64_t prompt_tokens = 512;
  int64_t new_tokens = 64;
  int64_t decode_context = 0;     // tokens that stand before the first that is decoded
  int64_t square_columns = 2048;  // and rows, of the square product of bench_gemm
  int64_t wide_outputs = 16384;   // of the widest product of bench_gemm, which no cache holds
  double seconds = 2;             // of each measurement
  int64_t read_bytes_min = streaming_bytes_min();  // of memory, as ReadProbe, beside decoding
  // Of the weights and buffers of what is measured; what measures the machine beside it is not
  // counted.
  int64_t memory_bytes_max = kUnlimitedBytes;
  serve::LayerBudget layers;  // of bench_inference
  // What prompts and training are compared with; none: Jige's own product of the widest layer.
  std::optional<Reference> products;
  // Of bench_train: whether to run one more step. Each is then told to the sink by itself, the
  // first one without warming up, and compared with nothing. None: the usual.
  std::function<bool()> next_step;
};

// What the machine can do; zero until measured.
struct MachineRates {
  double fma_flops_per_s = 0;  // of a CPU
  double read_bytes_per_s = 0;
};

// Called with every measurement when it is there.
using MeasurementSink = std::function<void(const Measurement&)>;

// Takes `seconds` at most for most of it, and less where they are many. What of memory is read
// is `bytes_min` at least, however long it takes to touch it.
Status bench_machine(Device& device, double seconds, MachineRates& rates,
                     const MeasurementSink& sink, int64_t bytes_min = streaming_bytes_min());
// Fail with kExhausted where bench_gemm and bench_attention take more than memory_bytes_max; so do
// these.
Status check_gemm_memory(const BenchOptions& options);
Status check_attention_memory(const BenchOptions& options);
Status bench_gemm(Device& device, const BenchOptions& options, const MachineRates& rates,
                  const MeasurementSink& sink);
Status bench_attention(Device& device, const BenchOptions& options, const MachineRates& rates,
                       const MeasurementSink& sink);
// Prompt processing and decoding of one sequence, with random weights from a folder that is written
// for it and removed again, so that loading is measured too. Where layers stream, decoding is
// compared with the copies alone: the share is that of the least time that they leave possible.
Status bench_inference(Device& device, const BenchOptions& options, const MeasurementSink& sink);
// Fails with kExhausted where a step of bench_train takes more than memory_bytes_max, naming the
// flags that would help.
Status check_training_memory(const BenchOptions& options, DeviceKind device);
// One optimizer step of `batch_tokens` random tokens. Fails as check_training_memory does.
Status bench_train(Device& device, const BenchOptions& options, const MachineRates& rates,
                   const MeasurementSink& sink);

}  // namespace jige::cli
