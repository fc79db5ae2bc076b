// Backward attention: checks, and how the work is cut. Every cut gives the same bits, see
// kernels/cpu/attention.h.
#include <algorithm>

#include "base/check.h"
#include "ops/attention.h"
#include "ops/attention_cuda.h"
#include "ops/attention_schedule.h"
#include "tensor/cuda_device.h"

namespace jige::ops {
namespace {

// A sequence whose grad_k and grad_v of one head take more than this in f32 is cut, so that the
// scratch of a thread is bounded.
constexpr int64_t kSequenceBytesMax = int64_t{8} << 20;

enum class Part { kSequence, kQueries, kKeys };

// Products of 64 keys with d columns that each part takes: S and dP, then those of its gradients.
constexpr double products_of(Part part) {
  return part == Part::kSequence ? 5 : part == Part::kQueries ? 3 : 4;
}

// Whether a sequence's gradients of one head fit into the scratch of a thread.
bool fits(int64_t head_dim, int64_t length) {
  const auto dim = static_cast<int32_t>(head_dim);
  return cpu::attention_sequence_scratch_bytes(dim, static_cast<int32_t>(length)) <=
         cpu::attention_backward_scratch_bytes(dim) + kSequenceBytesMax;
}

struct Work {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  Part part = Part::kSequence;
  int32_t begin = 0;  // of rows or keys
  int32_t count = 0;
  double cost = 0;
};

// Pairs of a key and a position of [begin, end) that sees it.
double pair_count(int64_t begin, int64_t end, int64_t window) {
  const int64_t ramp_end = window > 0 ? std::clamp(window, begin, end) : end;
  const double ramp =
      static_cast<double>(ramp_end - begin) * 0.5 * static_cast<double>(begin + 1 + ramp_end);
  return ramp + static_cast<double>(end - ramp_end) * static_cast<double>(window);
}

// A sequence and head cut into tiles of rows, which give grad_q, and of keys, which give the rest.
void cut_sequence(Work whole, int64_t length, const AttentionShape& shape,
                  std::vector<Work>* works) {
  const int64_t heads = shape.head_count / shape.kv_head_count;
  const int64_t window = attention_window(shape);
  const int64_t row_count = length * heads;
  for (int64_t row = 0; row < row_count; row += cpu::kAttentionRowsMax) {
    Work work = whole;
    work.part = Part::kQueries;
    work.begin = static_cast<int32_t>(row);
    work.count = static_cast<int32_t>(std::min<int64_t>(row_count - row, cpu::kAttentionRowsMax));
    const int64_t position = (row + work.count) / heads;
    const int64_t seen = window > 0 ? std::min(position, window) : position;
    work.cost = products_of(work.part) * static_cast<double>(seen * work.count);
    works->push_back(work);
  }
  for (int64_t key = 0; key < length; key += cpu::kAttentionTileKeys) {
    Work work = whole;
    work.part = Part::kKeys;
    work.begin = static_cast<int32_t>(key);
    work.count = static_cast<int32_t>(std::min<int64_t>(length - key, cpu::kAttentionTileKeys));
    const int64_t positions = window > 0 ? std::min(length - key, window) : length - key;
    work.cost = products_of(work.part) * static_cast<double>(positions * heads * work.count);
    works->push_back(work);
  }
}

// One piece for a sequence and head, unless it is too long for the scratch or so much of the whole
// that other threads would wait for it; then tiles, which take 7/5 of the arithmetic.
std::vector<Work> make_works(const AttentionBackward& args, int thread_count) {
  const AttentionShape& shape = args.shape;
  const int64_t heads = shape.head_count / shape.kv_head_count;
  const int64_t window = attention_window(shape);
  const auto cost_of = [&](const SequenceSpan& sequence) {
    return products_of(Part::kSequence) * pair_count(0, sequence.row_count, window) *
           static_cast<double>(heads);
  };
  double total = 0;
  for (const SequenceSpan& sequence : args.sequences) {
    total += cost_of(sequence) * static_cast<double>(shape.kv_head_count);
  }
  std::vector<Work> works;
  for (size_t i = 0; i < args.sequences.size(); ++i) {
    const SequenceSpan& sequence = args.sequences[i];
    if (sequence.row_count == 0) continue;
    const bool balanced = cost_of(sequence) * thread_count <= 1.4 * total || thread_count == 1;
    for (int64_t head = 0; head < shape.kv_head_count; ++head) {
      Work work;
      work.sequence = static_cast<int32_t>(i);
      work.kv_head = static_cast<int32_t>(head);
      work.count = sequence.row_count;
      work.cost = cost_of(sequence);
      if (fits(shape.head_dim, sequence.row_count) && balanced) {
        works.push_back(work);
      } else {
        cut_sequence(work, sequence.row_count, shape, &works);
      }
    }
  }
  std::stable_sort(works.begin(), works.end(),
                   [](const Work& a, const Work& b) { return a.cost > b.cost; });
  return works;
}

cpu::AttentionGradients gradients_of(const AttentionBackward& args, const Work& work) {
  const SequenceSpan& sequence = args.sequences[static_cast<size_t>(work.sequence)];
  cpu::AttentionGradients gradients =
      attention_gradients(args, work.kv_head, sequence.row_begin, sequence.row_begin);
  gradients.length = sequence.row_count;
  return gradients;
}

void run_one(const AttentionBackward& args, const Work& work, CpuDevice& device, int worker) {
  cpu::AttentionGradients gradients = gradients_of(args, work);
  const auto dim = static_cast<int32_t>(args.shape.head_dim);
  const int64_t bytes = work.part == Part::kSequence
                            ? cpu::attention_sequence_scratch_bytes(dim, gradients.length)
                            : cpu::attention_backward_scratch_bytes(dim);
  gradients.scratch = device.scratch(worker, bytes);
  switch (work.part) {
    case Part::kSequence:
      return cpu::attention_backward_sequence(gradients);
    case Part::kQueries:
      return cpu::attention_backward_queries(gradients, work.begin, work.count);
    case Part::kKeys:
      return cpu::attention_backward_keys(gradients, work.begin);
  }
}

// Of a run of rows that see one another, for a key/value head: some of its rows or keys.
struct AheadWork {
  AttentionBackward::MutualRun run;
  int32_t kv_head = 0;
  bool keys = false;
  int32_t begin = 0;
  int32_t count = 0;
};

std::vector<AheadWork> ahead_works(const AttentionBackward& args) {
  constexpr int32_t kPiece = 16;  // of rows or keys
  const int64_t heads = args.shape.head_count / args.shape.kv_head_count;
  std::vector<AheadWork> works;
  for (const auto& run : args.mutual) {
    for (int32_t head = 0; head < args.shape.kv_head_count; ++head) {
      const auto add = [&](bool keys, int32_t count) {
        for (int32_t begin = 0; begin < count; begin += kPiece) {
          works.push_back({run, head, keys, begin, std::min(kPiece, count - begin)});
        }
      };
      add(false, static_cast<int32_t>(run.row_count * heads));
      add(true, run.row_count);
    }
  }
  return works;
}

void run_ahead(const AttentionBackward& args, const AheadWork& work) {
  cpu::AttentionGradients gradients =
      attention_gradients(args, work.kv_head, work.run.row_begin, work.run.row_begin);
  gradients.length = work.run.row_count;
  work.keys ? cpu::attention_backward_ahead_keys(gradients, work.begin, work.count)
            : cpu::attention_backward_ahead_queries(gradients, work.begin, work.count);
}

void check_mutual(const AttentionBackward& args, int64_t rows) {
  int64_t least = 0;
  for (const auto& run : args.mutual) {
    JIGE_CHECK(run.row_begin >= least && run.row_count > 0 &&
                   int64_t{run.row_begin} + run.row_count <= rows,
               "rows {} + {} of {} see one another", run.row_begin, run.row_count, rows);
    least = int64_t{run.row_begin} + run.row_count;
  }
}

}  // namespace

int64_t attention_scratch_bytes(const AttentionShape& shape, int64_t length_max) {
  const auto dim = static_cast<int32_t>(shape.head_dim);
  const int64_t tile_bytes =
      std::max(cpu::attention_scratch_bytes(dim), cpu::attention_backward_scratch_bytes(dim));
  if (!fits(dim, length_max)) return tile_bytes + kSequenceBytesMax;
  return std::max(tile_bytes,
                  cpu::attention_sequence_scratch_bytes(dim, static_cast<int32_t>(length_max)));
}

void attention_backward(Stream& stream, const AttentionBackward& args) {
  const AttentionShape& shape = args.shape;
  check_attention_shape(shape);
  check_looks_back(shape);
  check_looks_back(args.sequences);
  const int64_t rows = args.q.rows();
  const int64_t q_columns = shape.head_count * shape.head_dim;
  const int64_t kv_columns = shape.kv_head_count * shape.head_dim;
  check_attention_matrix(args.q, "q", rows, q_columns);
  check_attention_matrix(args.dst, "dst", rows, q_columns);
  check_attention_matrix(args.grad_dst, "grad_dst", rows, q_columns);
  check_attention_matrix(args.grad_q, "grad_q", rows, q_columns);
  check_attention_matrix(args.k, "k", rows, kv_columns);
  check_attention_matrix(args.v, "v", rows, kv_columns);
  check_attention_matrix(args.grad_k, "grad_k", rows, kv_columns);
  check_attention_matrix(args.grad_v, "grad_v", rows, kv_columns);
  check_attention_matrix(args.lse, "lse", rows, shape.head_count);
  JIGE_CHECK(args.lse.dtype == DType::kF32, "lse is {}", dtype_info(args.lse.dtype).name);
  check_attention_sequences(args.sequences, rows, shape.head_count);
  for (const SequenceSpan& sequence : args.sequences) {
    JIGE_CHECK(sequence.context_count == 0, "{} tokens of context in training",
               sequence.context_count);
  }
  check_mutual(args, rows);
  if (on_cuda(stream)) {
    JIGE_CHECK(args.mutual.empty(), "rows that see one another on a GPU");
    return attention_backward_on_gpu(stream, args);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  CpuDevice* device = &cpu_stream.cpu();
  cpu_stream.submit([args, device] {
    const std::vector<Work> works = make_works(args, device->team().size());
    run_attention_work(device->team(), static_cast<int64_t>(works.size()),
                       [&](int64_t i, int worker) {
                         run_one(args, works[static_cast<size_t>(i)], *device, worker);
                       });
    const std::vector<AheadWork> ahead = ahead_works(args);
    run_attention_work(device->team(), static_cast<int64_t>(ahead.size()),
                       [&](int64_t i, int) { run_ahead(args, ahead[static_cast<size_t>(i)]); });
  });
}

}  // namespace jige::ops
