#include "cli/collective_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/interrupt.h"

namespace jige::cli {
namespace {

using comm::Collective;
using comm::Communicator;
using comm::Operation;
using comm::RedOp;

// Whole numbers so small that sums of them are exact in every type and order.
float element_value(int rank, int64_t index, int ranks) {
  const auto mixed = static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u +
                     static_cast<uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9u;
  return static_cast<float>((mixed >> 40) % (ranks > 30 ? 2 : 8));
}

void store_value(DType dtype, float value, std::byte* at) {
  const auto integer = static_cast<int32_t>(value);
  const BFloat16 bf16 = to_bfloat16(value);
  const Float16 f16 = to_float16(value);
  switch (dtype) {
    case DType::kBF16:
      std::memcpy(at, &bf16, 2);
      return;
    case DType::kF16:
      std::memcpy(at, &f16, 2);
      return;
    case DType::kI32:
      std::memcpy(at, &integer, 4);
      return;
    default:
      std::memcpy(at, &value, 4);
  }
}

// After a signal it leaves its loops; the next operation of the group says so.
class CollectiveMeasurement {
 public:
  CollectiveMeasurement(Communicator& group, const CollectiveBenchOptions& options, int64_t count)
      : group_(group), options_(options), count_(count) {
    const auto block = static_cast<size_t>(dtype_bytes(options.dtype, count));
    const auto whole = block * static_cast<size_t>(group.size());
    src_.resize(src_is_whole() ? whole : block);
    dst_.resize(dst_is_whole() ? whole : block);
  }

  Result<CollectiveTimes> run(bool in_place);

 private:
  bool src_is_whole() const {
    return options_.collective == Collective::kReduceScatter ||
           options_.collective == Collective::kAllToAll;
  }
  bool dst_is_whole() const {
    return options_.collective == Collective::kAllGather ||
           options_.collective == Collective::kAllToAll;
  }
  int64_t element_bytes() const { return dtype_info(options_.dtype).block_bytes; }
  Operation operation(bool in_place);
  void fill(std::byte* data, int64_t elements);
  float expected(int64_t index) const;
  float reduced(int64_t index) const;
  int64_t count_wrong(const std::byte* data) const;
  Result<int64_t> check(bool in_place);
  Result<std::vector<double>> gather(double value);

  Communicator& group_;
  const CollectiveBenchOptions& options_;
  int64_t count_;
  std::vector<std::byte> src_;
  std::vector<std::byte> dst_;
};

Operation CollectiveMeasurement::operation(bool in_place) {
  Operation op = {.collective = options_.collective,
                  .dtype = options_.dtype,
                  .redop = options_.redop,
                  .count = count_,
                  .root = options_.root,
                  .src = src_.data(),
                  .dst = dst_.data()};
  if (!in_place) return op;
  const int64_t own = group_.rank() * op.bytes();
  switch (options_.collective) {
    case Collective::kAllGather:
      op.src = dst_.data() + own;
      break;
    case Collective::kReduceScatter:
      op.dst = src_.data() + own;
      break;
    default:
      op.src = dst_.data();
  }
  return op;
}

void CollectiveMeasurement::fill(std::byte* data, int64_t elements) {
  for (int64_t i = 0; i < elements && !interrupted(); ++i) {
    store_value(options_.dtype, element_value(group_.rank(), i, group_.size()),
                data + i * element_bytes());
  }
}

float CollectiveMeasurement::reduced(int64_t index) const {
  double sum = 0;
  float low = element_value(0, index, group_.size());
  float high = low;
  for (int r = 0; r < group_.size(); ++r) {
    const float value = element_value(r, index, group_.size());
    sum += value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const double mean = sum / group_.size();
  switch (options_.redop) {
    case RedOp::kMin:
      return low;
    case RedOp::kMax:
      return high;
    case RedOp::kAvg:
      return static_cast<float>(options_.dtype == DType::kI32 ? std::trunc(mean) : mean);
    default:
      return static_cast<float>(sum);
  }
}

// Element `index` of the result on this rank.
float CollectiveMeasurement::expected(int64_t index) const {
  const int n = group_.size();
  const int rank = group_.rank();
  switch (options_.collective) {
    case Collective::kReduceScatter:
      return reduced(rank * count_ + index);
    case Collective::kAllGather:
      return element_value(static_cast<int>(index / count_), index % count_, n);
    case Collective::kAllToAll:
      return element_value(static_cast<int>(index / count_), rank * count_ + index % count_, n);
    case Collective::kBroadcast:
      return element_value(options_.root, index, n);
    default:
      return reduced(index);
  }
}

int64_t CollectiveMeasurement::count_wrong(const std::byte* data) const {
  if (options_.collective == Collective::kReduce && group_.rank() != options_.root) return 0;
  const int64_t elements = dst_is_whole() ? count_ * group_.size() : count_;
  int64_t wrong = 0;
  for (int64_t i = 0; i < elements && !interrupted(); ++i) {
    std::byte cell[4] = {};
    store_value(options_.dtype, expected(i), cell);
    wrong +=
        std::memcmp(cell, data + i * element_bytes(), static_cast<size_t>(element_bytes())) != 0;
  }
  return wrong;
}

// One value of each rank, by rank.
Result<std::vector<double>> CollectiveMeasurement::gather(double value) {
  std::vector<double> all(static_cast<size_t>(group_.size()));
  JIGE_DO(group_.all_gather(&value, all.data(), 1, DType::kI64));
  return all;
}

Result<int64_t> CollectiveMeasurement::check(bool in_place) {
  const Operation op = operation(in_place);
  std::fill(dst_.begin(), dst_.end(), std::byte{0xff});
  const int64_t elements = src_is_whole() ? count_ * group_.size() : count_;
  fill(in_place && !src_is_whole() ? const_cast<std::byte*>(op.src) : src_.data(), elements);
  if (in_place && options_.collective == Collective::kAllToAll) fill(dst_.data(), elements);
  JIGE_DO(group_.run(op));
  JIGE_TRY(const std::vector<double> wrong, gather(static_cast<double>(count_wrong(op.dst))));
  double sum = 0;
  for (const double w : wrong) sum += w;
  return static_cast<int64_t>(sum);
}

Result<CollectiveTimes> CollectiveMeasurement::run(bool in_place) {
  const Operation op = operation(in_place);
  for (int i = 0; i < options_.warmup; ++i) JIGE_DO(group_.run(op));
  JIGE_DO(group_.barrier());
  std::vector<double> each;
  const StopWatch watch;
  double before = 0;
  for (int i = 0; i < options_.iterations; ++i) {
    JIGE_DO(group_.run(op));
    const double now = watch.seconds();
    each.push_back((now - before) * 1e6);
    before = now;
  }
  JIGE_TRY(const std::vector<double> totals, gather(before * 1e6 / options_.iterations));
  CollectiveTimes times;
  for (const double t : totals) times.mean_us += t / group_.size();
  std::sort(each.begin(), each.end());
  const auto at = [&](double share) {
    return each[static_cast<size_t>(share * static_cast<double>(each.size() - 1) + 0.5)];
  };
  times.fastest_us = each.front();
  times.median_us = at(0.5);
  times.p99_us = at(0.99);
  const auto bytes = static_cast<double>(comm::whole_bytes(op, group_.size()));
  times.algbw = bytes / times.mean_us * 1e-3;
  times.busbw = times.algbw * bus_factor(options_.collective, group_.size());
  if (options_.check) {
    JIGE_TRY(times.wrong, check(in_place));
  }
  return times;
}

}  // namespace

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

int64_t bench_bytes(const CollectiveBenchOptions& options, int ranks, int64_t bytes) {
  switch (options.collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return bytes + bytes / ranks;
    default:
      return 2 * bytes;
  }
}

std::vector<int64_t> bench_sizes(const CollectiveBenchOptions& options) {
  std::vector<int64_t> sizes;
  for (int64_t size = options.bytes_first; size <= options.bytes_last; size *= options.factor) {
    sizes.push_back(size);
    if (size == 0 || options.factor < 2 || size > options.bytes_last / options.factor) break;
  }
  return sizes;
}

Result<CollectiveRow> bench_collective(Communicator& group, const CollectiveBenchOptions& options,
                                       int64_t bytes) {
  CollectiveRow row;
  row.count = bytes / dtype_info(options.dtype).block_bytes;
  const bool blocks = options.collective == Collective::kAllGather ||
                      options.collective == Collective::kReduceScatter ||
                      options.collective == Collective::kAllToAll;
  if (blocks) row.count /= group.size();
  CollectiveMeasurement measurement(group, options, row.count);
  JIGE_TRY(row.out_of_place, measurement.run(false));
  JIGE_TRY(row.in_place, measurement.run(true));
  row.bytes = dtype_bytes(options.dtype, row.count) * (blocks ? group.size() : 1);
  return row;
}

}  // namespace jige::cli
