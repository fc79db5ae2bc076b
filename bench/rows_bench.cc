// What a product of few rows takes, row by row, against the floor that the machine sets.
//
// usage: rows_bench [threads] [outputs] [inputs] [rows …]     0 threads: all cores
// For every count of rows (1 to 40, 48 and 64 without a list) and format of the weight:
// microseconds of processor time of all threads, the median of rounds in which all counts and
// formats take turns, and the share of the floor: the longer of reading the packed weight at the
// rate of memory, and the rows at the time that each takes where there are 512. The weights rotate
// through more memory than the caches hold, but for 512 rows. One thread says most beside other
// work.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "cli/machine_rates.h"
#include "products.h"
#include "timing.h"

namespace jige::bench {
namespace {

using ops::WeightFormat;

constexpr int kRounds = 9;
constexpr int64_t kManyRows = 512;
constexpr int64_t kRotatedBytes = int64_t{96} << 20;
constexpr double kBatchSeconds = 0.002;
constexpr WeightKind kKinds[] = {{"bf16", WeightFormat::kCompute},
                                 {"q8", WeightFormat::kQ8},
                                 {"q4", WeightFormat::kQ4},
                                 {"q4 even", WeightFormat::kQ4, true}};

// A weight in one format and what its products take.
struct Contender {
  Contender(Machine& machine, const Product& product, const std::vector<int64_t>& rows)
      : times(rows.size()) {
    const int64_t bytes = ops::packed_weight_bytes(product.type, ops::PackUse::kForward,
                                                   product.outputs, product.inputs, product.format);
    copies = std::max<int64_t>(1, kRotatedBytes / bytes);
    ours = std::make_unique<OurProduct>(machine, product, copies);
  }
  // Seconds of a call, over calls that fill a batch.
  double run(int64_t rows) {
    const double start = processor_seconds();
    double seconds = 0;
    int64_t calls = 0;
    do {
      ours->call_rows(rows == kManyRows ? 0 : next++ % copies, rows);
      ++calls;
      seconds = processor_seconds() - start;
    } while (seconds < kBatchSeconds);
    return seconds / static_cast<double>(calls);
  }

  std::unique_ptr<OurProduct> ours;
  int64_t copies = 1;
  int64_t next = 0;
  std::vector<std::vector<double>> times;  // by count of rows and round
};

void run(int thread_count, int64_t outputs, int64_t inputs, std::vector<int64_t> rows) {
  Machine machine(thread_count);
  rows.push_back(kManyRows);
  std::vector<Contender> contenders;
  for (const WeightKind& kind : kKinds) {
    const Product product = {.type = DType::kBF16,
                             .form = Form::kForward,
                             .tokens = *std::ranges::max_element(rows),
                             .inputs = inputs,
                             .outputs = outputs,
                             .format = kind.format,
                             .even_levels = kind.even_levels};
    contenders.emplace_back(machine, product, rows);
  }
  const auto memory = cli::ReadProbe::create(machine.device, {.bytes = kRotatedBytes});
  if (!memory) return;
  double read_rate = 0;
  for (int round = 0; round < kRounds; ++round) {
    read_rate = std::max(read_rate, cli::measure_read_bytes_per_s(**memory, 0.02));
    for (size_t i = 0; i < rows.size(); ++i) {
      for (Contender& contender : contenders) contender.times[i].push_back(contender.run(rows[i]));
    }
  }
  fmt::print("{}, {}, {} threads, {}x{}, {:.1f} GB/s read\nrows", cpu_features().model_name,
             isa_name(active_isa()), machine.device.team().size(), outputs, inputs,
             read_rate * 1e-9);
  for (const WeightKind& kind : kKinds) fmt::print("{:>9} us  floor", kind.name);
  fmt::print("\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    fmt::print("{:>4}", rows[i]);
    for (const Contender& contender : contenders) {
      const double seconds = median(contender.times[i]);
      const double row_seconds = median(contender.times.back()) / static_cast<double>(kManyRows);
      const double read_seconds = static_cast<double>(contender.ours->packed_bytes()) / read_rate *
                                  machine.device.team().size();
      const double floor = std::max(read_seconds, row_seconds * static_cast<double>(rows[i]));
      fmt::print("{:>12.1f} {:>5.0f}%", seconds * 1e6, 100 * floor / seconds);
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  std::vector<int64_t> rows;
  for (int i = 4; i < argc; ++i) rows.push_back(std::max(1, std::atoi(argv[i])));
  for (int64_t count = 1; argc <= 4 && count <= 40; ++count) rows.push_back(count);
  if (argc <= 4) rows.insert(rows.end(), {48, 64});
  jige::bench::run(number(1, 0), std::max(1, number(2, 2304)), std::max(1, number(3, 768)), rows);
  return 0;
}
