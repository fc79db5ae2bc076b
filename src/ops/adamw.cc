#include "ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/adamw_blocks.h"
#include "kernels/cuda/adamw.h"
#include "kernels/cuda/sums.h"
#include "ops/kernel_rows.h"
#include "ops/pack_rows.h"

namespace jige::ops {
namespace {

// The factors of the kernel's formula, computed in double and rounded once.
cpu::AdamWFactors factors_of(const AdamW& args) {
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1 - std::pow(args.beta1, step);
  const double correction2 = 1 - std::pow(args.beta2, step);
  return {.grad_scale = static_cast<float>(args.grad_scale),
          .beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1 - args.beta2),
          .root_correction = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(args.epsilon),
          .decay = static_cast<float>(1 - args.learning_rate * args.weight_decay),
          .step_size = static_cast<float>(args.learning_rate / correction1)};
}

// The update of elements, whatever the moments are kept as.
class Updater {
 public:
  explicit Updater(const AdamW& args)
      : args_(args), factors_(factors_of(args)), cut_(moment_cut(args.moment1.dtype)) {}

  // Elements that are updated together: whoever divides them does so at multiples.
  int64_t cut() const { return cut_; }

  // REQUIRES: `begin` is a multiple of cut(), `end` too or all there are.
  void run(int64_t begin, int64_t end) const {
    auto* weight = static_cast<float*>(args_.weight.data);
    const auto* grad = static_cast<const float*>(args_.grad.data);
    if (args_.moment1.dtype == DType::kF32) {
      cpu::adamw_kernels(active_isa())
          .step({weight, static_cast<float*>(args_.moment1.data),
                 static_cast<float*>(args_.moment2.data), grad},
                factors_, begin, end);
      return;
    }
    cpu::adamw_block_kernels(active_isa())
        .step({weight, static_cast<cpu::MomentBlock*>(args_.moment1.data),
               static_cast<cpu::MomentBlock*>(args_.moment2.data), grad},
              factors_, begin, end);
  }

  void run_all(CpuDevice& device) const {
    const int64_t count = args_.weight.count();
    device.team().parallel_for(
        (count + cut_ - 1) / cut_, kElementsPerRange / cut_,
        [&](int64_t begin, int64_t end, int) { run(begin * cut_, std::min(end * cut_, count)); });
  }

 private:
  const AdamW& args_;
  cpu::AdamWFactors factors_;
  int64_t cut_;
};

// Rows of a weight that are updated and then packed: their f32 values stay in a second-level cache,
// and their packed forms begin and end with whole blocks of every engine.
constexpr int64_t kPackRows = 32;

// One update in pieces that threads take: blocks of rows with their packed forms, or elements.
class UpdatePieces {
 public:
  UpdatePieces(CpuDevice& device, const AdamW& args)
      : device_(device), args_(args), updater_(args) {
    for (const PackPart& part : args.packs) engines_.push_back(&start_packing(part.packed));
    const int64_t count = args.weight.count();
    const int64_t columns = packs() ? std::max<int64_t>(args.weight.columns(), 1) : updater_.cut();
    const int64_t block = packs() ? kPackRows * columns : updater_.cut();
    skipped_ = packs() ? args.packs.front().row_begin % kPackRows : 0;
    block_count_ = (skipped_ * columns + count + block - 1) / block;
    blocks_per_piece_ = std::max<int64_t>(kElementsPerRange / block, 1);
    // Where blocks of moments end elsewhere than blocks of rows, all is updated before any is
    // packed.
    updates_ =
        !packs() || (block % updater_.cut() == 0 && skipped_ * columns % updater_.cut() == 0);
  }

  int64_t count() const { return (block_count_ + blocks_per_piece_ - 1) / blocks_per_piece_; }

  // Whether its pieces may run beside those of other updates: all of its packed forms' blocks of
  // rows are its own.
  bool may_run_beside_others() const {
    if (!updates_) return false;
    return std::all_of(args_.packs.begin(), args_.packs.end(), [&](const PackPart& part) {
      const int64_t end = part.row_begin + args_.weight.rows();
      return part.row_begin % kPackRows == 0 && (end % kPackRows == 0 || end == part.packed.n);
    });
  }

  // What comes before all pieces.
  void start() const {
    if (!updates_) updater_.run_all(device_);
  }

  void run(int64_t piece) const {
    const int64_t begin = piece * blocks_per_piece_;
    const int64_t end = std::min(begin + blocks_per_piece_, block_count_);
    if (!packs()) {
      updater_.run(begin * updater_.cut(), std::min(end * updater_.cut(), args_.weight.count()));
      return;
    }
    for (int64_t block = begin; block < end; ++block) run_rows(block);
  }

 private:
  bool packs() const { return !args_.packs.empty(); }

  void run_rows(int64_t block) const {
    const int64_t columns = args_.weight.columns();
    const int64_t first = std::max<int64_t>(block * kPackRows - skipped_, 0);
    const int64_t last = std::min((block + 1) * kPackRows - skipped_, args_.weight.rows());
    if (updates_) updater_.run(first * columns, last * columns);
    for (size_t i = 0; i < engines_.size(); ++i) {
      const PackPart part = {args_.packs[i].packed, args_.packs[i].row_begin + first};
      pack_rows(device_, *engines_[i], part, args_.weight.row_range(first, last));
    }
  }

  CpuDevice& device_;
  const AdamW& args_;
  Updater updater_;
  std::vector<const cpu::GemmEngine*> engines_;
  int64_t skipped_;  // rows of the first block that another part has
  int64_t block_count_;
  int64_t blocks_per_piece_;
  bool updates_;  // each piece its elements
};

// Calls body(i, piece) for the pieces of all, whose numbers `counts` tells, in one loop of the
// team: threads wait for each other once.
template <typename Body>
void for_all_pieces(CpuDevice& device, std::span<const int64_t> counts, int64_t grain,
                    Body&& body) {
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (const int64_t count : counts) ends.push_back(total += count);
  device.team().parallel_for(total, grain, [&](int64_t begin, int64_t end, int) {
    auto i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (int64_t piece = begin; piece < end; ++piece) {
      while (piece >= ends[i]) ++i;
      body(i, piece - (ends[i] - counts[i]));
    }
  });
}

void update_all(CpuDevice& device, std::span<const AdamW> updates) {
  std::vector<UpdatePieces> together;
  std::vector<int64_t> counts;
  for (const AdamW& args : updates) {
    if (args.weight.count() == 0) continue;
    UpdatePieces pieces(device, args);
    const int64_t count = pieces.count();
    if (pieces.may_run_beside_others()) {
      together.push_back(std::move(pieces));
      counts.push_back(count);
      continue;
    }
    pieces.start();
    for_all_pieces(device, {&count, 1}, 1, [&](size_t, int64_t piece) { pieces.run(piece); });
  }
  for_all_pieces(device, counts, 1, [&](size_t i, int64_t piece) { together[i].run(piece); });
}

cuda::WeightCopies copies_of(const AdamW& args) {
  cuda::WeightCopies copies = {};
  JIGE_CHECK(args.packs.size() <= cuda::WeightCopies::kMax, "{} packed forms of a weight",
             args.packs.size());
  for (const PackPart& part : args.packs) {
    const TensorView rows = packed_rows_on_gpu(part.packed);
    void* const first = rows.row_range(part.row_begin, part.row_begin).data;
    copies.copies[copies.count++] = {first, element_type(rows.dtype)};
  }
  return copies;
}

void submit_to_gpu(const cuda::LaunchStream& stream, const AdamW& args) {
  auto* weight = args.weight.as<float>();
  const auto* grad = args.grad.as<float>();
  if (args.moment1.dtype == DType::kF32) {
    const cpu::AdamWArrays arrays = {weight, args.moment1.as<float>(), args.moment2.as<float>(),
                                     grad};
    cuda::adamw(stream, arrays, factors_of(args), copies_of(args), args.weight.count());
    return;
  }
  const cpu::AdamWBlockArrays arrays = {weight, static_cast<cpu::MomentBlock*>(args.moment1.data),
                                        static_cast<cpu::MomentBlock*>(args.moment2.data), grad};
  cuda::adamw_blocks(stream, arrays, factors_of(args), copies_of(args), args.weight.count());
}

void sum_all_squares(CpuDevice& device, std::span<const TensorView> values, double* results) {
  std::vector<std::vector<double>> sums;
  std::vector<int64_t> counts;
  for (const TensorView& tensor : values) {
    counts.push_back((tensor.count() + cpu::kSquareBlock - 1) / cpu::kSquareBlock);
    sums.emplace_back(static_cast<size_t>(counts.back()));
  }
  const cpu::AdamWKernels& kernels = cpu::adamw_kernels(active_isa());
  constexpr int64_t kGrain = 4;
  for_all_pieces(device, counts, kGrain, [&](size_t i, int64_t block) {
    const int64_t first = block * cpu::kSquareBlock;
    sums[i][static_cast<size_t>(block)] =
        kernels.sum_of_squares(static_cast<const float*>(values[i].data) + first,
                               std::min(cpu::kSquareBlock, values[i].count() - first));
  });
  for (size_t i = 0; i < values.size(); ++i) {
    results[i] = std::accumulate(sums[i].begin(), sums[i].end(), 0.0);
  }
}

// One launch and one copy for all, since waiting for a copy takes longer than most of the sums.
void sum_squares_on_gpu(CudaStream& stream, std::span<const TensorView> values, double* results) {
  std::vector<cuda::SquaredTensor> tensors;
  int64_t piece_count = 0;
  for (const TensorView& tensor : values) {
    tensors.push_back({static_cast<const float*>(tensor.data), tensor.count(), piece_count});
    piece_count += cuda::square_pieces(tensor.count());
  }
  const auto count = static_cast<int64_t>(tensors.size());
  constexpr auto kBytes = static_cast<int64_t>(sizeof(double));
  auto* sums = static_cast<double*>(stream.scratch((count + piece_count) * kBytes));
  const void* table =
      stream.upload(tensors.data(), count * static_cast<int64_t>(sizeof(cuda::SquaredTensor)));
  cuda::sums_of_squares(launch_stream(stream), {static_cast<const cuda::SquaredTensor*>(table),
                                                count, piece_count, sums + count, sums});
  stream.copy(results, sums, count * kBytes, CopyKind::kDeviceToHost);
}

void check_moment(const char* name, const TensorView& moment, const AdamW& args) {
  JIGE_CHECK(moment.dtype == args.moment1.dtype, "moments are {} and {}",
             dtype_info(args.moment1.dtype).name, dtype_info(moment.dtype).name);
  const MomentLayout layout = moment_part_layout(moment.dtype, args.weight.count());
  check_vector(name, moment, layout.dtype, layout.shape.count());
}

void check_update(const AdamW& args) {
  const int64_t count = args.weight.count();
  check_vector("weight", args.weight, DType::kF32, count);
  check_moment("moment1", args.moment1, args);
  check_moment("moment2", args.moment2, args);
  check_vector("grad", args.grad, DType::kF32, count);
  JIGE_CHECK(args.step >= 1, "step {}", args.step);
  for (const PackPart& part : args.packs) {
    JIGE_CHECK(part.packed.k == args.weight.columns() && part.row_begin >= 0 &&
                   part.row_begin + args.weight.rows() <= part.packed.n &&
                   part.row_begin == args.packs.front().row_begin,
               "weight {} at row {} of [{}, {}]", args.weight.shape.to_string(), part.row_begin,
               part.packed.n, part.packed.k);
  }
}

}  // namespace

void adamw(Stream& stream, std::span<const AdamW> updates) {
  for (const AdamW& args : updates) check_update(args);
  if (on_cuda(stream)) {
    for (const AdamW& args : updates) submit_to_gpu(launch_stream(stream), args);
    return;
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([updates = std::vector<AdamW>(updates.begin(), updates.end()),
                     &device = cpu_stream.cpu()] { update_all(device, updates); });
}

void sums_of_squares(Stream& stream, std::span<const TensorView> values, double* results) {
  for (const TensorView& tensor : values) {
    JIGE_CHECK(tensor.dtype == DType::kF32 && tensor.contiguous(), "sum of squares of {} {}",
               dtype_info(tensor.dtype).name, tensor.shape.to_string());
  }
  if (values.empty()) return;
  if (on_cuda(stream)) return sum_squares_on_gpu(as_cuda(stream), values, results);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([values = std::vector<TensorView>(values.begin(), values.end()), results,
                     &device = cpu_stream.cpu()] { sum_all_squares(device, values, results); });
}

}  // namespace jige::ops
