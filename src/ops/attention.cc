#include "ops/attention.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/attention_cached_cuda.h"
#include "ops/attention_cuda.h"
#include "ops/attention_schedule.h"
#include "ops/kernel_rows.h"
#include "tensor/cuda_device.h"

namespace jige::ops {

static_assert(kAttentionDimMax == cpu::kAttentionDimMax);

namespace {

// Forward attention with the keys wherever they are.
struct Problem {
  TensorView dst, q, lse;
  std::vector<SequenceSpan> sequences;
  AttentionShape shape;
  TensorView k, v;    // flat, or
  KvCacheView cache;  // paged, when it has data
  std::vector<int32_t> key_begins;
};

cpu::AttentionKeys keys_of(const Problem& problem, const AttentionWork& work) {
  const auto index = static_cast<size_t>(work.sequence);
  const SequenceSpan& sequence = problem.sequences[index];
  const int64_t kv_head = work.kv_head;
  const int64_t head_dim = problem.shape.head_dim;
  cpu::AttentionKeys keys;
  if (!problem.cache.data) {
    const int64_t row = problem.key_begins.empty() ? sequence.row_begin : problem.key_begins[index];
    keys.k = attention_source(problem.k, row, kv_head * head_dim);
    keys.v = attention_source(problem.v, row, kv_head * head_dim);
    return keys;
  }
  const int64_t keys_of_head = kKvBlockTokens * head_dim;
  keys.blocks = sequence.blocks;
  if (problem.cache.dtype == DType::kI8) {
    const int64_t bytes = kv_cache_bytes(DType::kI8, 1, 1, head_dim);
    const auto* data = static_cast<const char*>(problem.cache.data) + kv_head * bytes;
    keys.k.data = data;
    keys.v.data = data + keys_of_head;
    keys.scales = data + 2 * keys_of_head;
    keys.block_stride = problem.shape.kv_head_count * bytes;
    return keys;
  }
  TensorView head;
  head.data = problem.cache.data;
  head.dtype = problem.cache.dtype;
  keys.k = attention_source(head, 0, kv_head * 2 * keys_of_head);
  keys.v = attention_source(head, 0, (kv_head * 2 + 1) * keys_of_head);
  keys.block_stride = problem.shape.kv_head_count * 2 * keys_of_head;
  return keys;
}

// Of the head whose columns begin so.
cpu::AttentionDistanceRows distance_rows_of(const AttentionDistanceTables& tables, int64_t column) {
  cpu::AttentionDistanceRows rows{.row_of = tables.row_of};
  if (tables.for_queries) rows.for_queries = attention_source(tables.for_queries, 0, column);
  if (tables.for_keys) rows.for_keys = attention_source(tables.for_keys, 0, column);
  return rows;
}

cpu::AttentionRows work_rows(const Problem& problem, const AttentionWork& work) {
  const SequenceSpan& sequence = problem.sequences[static_cast<size_t>(work.sequence)];
  const int64_t heads = problem.shape.head_count / problem.shape.kv_head_count;
  const int64_t column = work.kv_head * heads * problem.shape.head_dim;
  cpu::AttentionRows rows;
  rows.keys = keys_of(problem, work);
  rows.q = attention_source(problem.q, sequence.row_begin, column);
  rows.dst = attention_target(problem.dst, sequence.row_begin, column);
  if (problem.lse) {
    rows.lse_stride = problem.lse.row_stride;
    rows.lse =
        problem.lse.as<float>() + sequence.row_begin * rows.lse_stride + work.kv_head * heads;
  }
  rows.context_count = sequence.context_count;
  rows.head_count = static_cast<int32_t>(heads);
  rows.head_dim = static_cast<int32_t>(problem.shape.head_dim);
  rows.window = attention_window(problem.shape);
  const AttentionAhead seen = attention_ahead(problem.shape, sequence);
  rows.ahead = seen.ahead;
  rows.key_count = seen.key_count;
  rows.scale = static_cast<float>(problem.shape.scale);
  rows.cap = static_cast<float>(problem.shape.cap);
  if (problem.shape.distances) {
    rows.distance_stride = problem.shape.distance_stride;
    rows.distances = problem.shape.distances + work.kv_head * heads * rows.distance_stride;
  }
  if (problem.shape.distance_tables.row_of) {
    rows.distance_rows = distance_rows_of(problem.shape.distance_tables, column);
  }
  if (problem.shape.sinks) rows.sinks = problem.shape.sinks + work.kv_head * heads;
  rows.row_begin = work.row_begin;
  rows.row_count = work.row_count;
  rows.split_begin = work.split_begin;
  rows.split_end = work.split_end;
  return rows;
}

bool in_tiles(const Problem& problem) {
  const auto is_bf16 = [](const TensorView& view) { return view.dtype == DType::kBF16; };
  const bool keys = problem.cache.data ? problem.cache.dtype != DType::kF32
                                       : is_bf16(problem.k) && is_bf16(problem.v);
  return cpu::attention_products(keys && is_bf16(problem.q),
                                 static_cast<float>(problem.shape.scale)) !=
         cpu::AttentionProducts::kChains;
}

void run(const Problem& problem, CpuDevice& device) {
  ThreadTeam& team = device.team();
  const AttentionSchedule schedule =
      make_attention_schedule(problem.sequences, problem.shape,
                              {.thread_count = team.size(), .in_tiles = in_tiles(problem)});
  const auto head_dim = static_cast<int32_t>(problem.shape.head_dim);
  const int64_t tile_bytes = cpu::attention_scratch_bytes(head_dim);
  const bool distant = problem.shape.distance_tables.row_of != nullptr;
  const int64_t distance_bytes = distant ? attention_distance_scratch_bytes(problem.shape) : 0;
  // Between the two loops another stream may have the device's threads and their scratch; this
  // memory is the stream's own thread's, and kept like it.
  thread_local std::vector<float> partials;
  const auto partial_floats = static_cast<size_t>(schedule.partial_floats);
  if (partials.size() < partial_floats) partials.resize(partial_floats);
  float* const partial = partials.data();
  const auto run_one = [&](const AttentionWork& work, int worker, auto kernel) {
    cpu::AttentionRows rows = work_rows(problem, work);
    rows.scratch = device.scratch(worker, tile_bytes + distance_bytes);
    rows.distance_scratch = static_cast<char*>(rows.scratch) + tile_bytes;
    if (work.partial_offset >= 0) rows.partial = partial + work.partial_offset;
    kernel(rows);
  };
  run_attention_work(team, static_cast<int64_t>(schedule.attend.size()), [&](int64_t i, int w) {
    run_one(schedule.attend[static_cast<size_t>(i)], w, cpu::attention_rows);
  });
  run_attention_work(team, static_cast<int64_t>(schedule.merge.size()), [&](int64_t i, int w) {
    run_one(schedule.merge[static_cast<size_t>(i)], w, cpu::attention_merge);
  });
}

void submit(Stream& stream, Problem problem) {
  const bool any_row = std::any_of(problem.sequences.begin(), problem.sequences.end(),
                                   [](const SequenceSpan& s) { return s.row_count > 0; });
  if (!any_row) return;
  CpuStream& cpu_stream = as_cpu(stream);
  CpuDevice* device = &cpu_stream.cpu();
  cpu_stream.submit([problem = std::move(problem), device] { run(problem, *device); });
}

// Ends the process unless the keys that the sequence's rows see lie in so many rows.
void check_key_rows(const SequenceSpan& sequence, int32_t key_begin, int64_t key_rows) {
  const int64_t end = int64_t{key_begin} + sequence.context_count + sequence.row_count;
  JIGE_CHECK(key_begin >= 0 && end <= key_rows, "keys in rows {} to {} of {}", key_begin, end,
             key_rows);
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForward& args) {
  const AttentionShape& shape = args.shape;
  check_attention_shape(shape);
  const int64_t rows = args.q.rows();
  check_attention_matrix(args.q, "q", rows, shape.head_count * shape.head_dim);
  check_attention_matrix(args.dst, "dst", rows, shape.head_count * shape.head_dim);
  const bool divided = !args.key_begins.empty();
  if (divided) check_looks_back(shape);
  const int64_t key_rows = divided ? args.k.rows() : rows;
  check_attention_matrix(args.k, "k", key_rows, shape.kv_head_count * shape.head_dim);
  check_attention_matrix(args.v, "v", key_rows, shape.kv_head_count * shape.head_dim);
  if (args.lse) {
    check_attention_matrix(args.lse, "lse", rows, shape.head_count);
    JIGE_CHECK(args.lse.dtype == DType::kF32, "lse is {}", dtype_info(args.lse.dtype).name);
  }
  check_attention_sequences(args.sequences, rows, shape.head_count);
  if (!divided) check_looks_back(args.sequences);
  JIGE_CHECK(!divided || (args.key_begins.size() == args.sequences.size() && !on_cuda(stream)),
             "keys of {} sequences for {}", args.key_begins.size(), args.sequences.size());
  for (size_t i = 0; i < args.sequences.size(); ++i) {
    const SequenceSpan& sequence = args.sequences[i];
    if (divided) {
      check_key_rows(sequence, args.key_begins[i], key_rows);
    } else {
      JIGE_CHECK(sequence.context_count == 0, "{} tokens of context without a cache",
                 sequence.context_count);
    }
  }
  if (on_cuda(stream)) return attention_forward_on_gpu(stream, args);
  submit(stream,
         {args.dst, args.q, args.lse, args.sequences, shape, args.k, args.v, {}, args.key_begins});
}

int64_t attention_distance_scratch_bytes(const AttentionShape& shape) {
  return cpu::attention_distance_scratch_bytes(static_cast<int32_t>(shape.head_dim));
}

namespace {

// But for the blocks of sequences.
void check_cached(const AttentionCached& args) {
  const AttentionShape& shape = args.shape;
  check_attention_shape(shape);
  check_looks_back(shape);
  const int64_t rows = args.q.rows();
  check_attention_matrix(args.q, "q", rows, shape.head_count * shape.head_dim);
  check_attention_matrix(args.dst, "dst", rows, shape.head_count * shape.head_dim);
  check_kv_cache(args.cache);
  JIGE_CHECK(
      args.cache.kv_head_count == shape.kv_head_count && args.cache.head_dim == shape.head_dim,
      "cache of {} heads of {}, attention of {} of {}", args.cache.kv_head_count,
      args.cache.head_dim, shape.kv_head_count, shape.head_dim);
  JIGE_CHECK(args.latent_columns >= 0 && args.latent_columns <= shape.head_dim,
             "latents of {} columns in keys of {}", args.latent_columns, shape.head_dim);
  check_attention_sequences(args.sequences, rows, shape.head_count);
}

}  // namespace

void attention_cached(Stream& stream, const AttentionCached& args) {
  check_cached(args);
  if (on_cuda(stream)) {
    check_looks_back(args.sequences);
    return attention_cached_on_gpu(stream, args);
  }
  for (const SequenceSpan& sequence : args.sequences) {
    check_seen_blocks(sequence, args.shape, args.cache);
  }
  submit(stream, {args.dst, args.q, {}, args.sequences, args.shape, {}, {}, args.cache, {}});
}

bool attention_step(Stream& stream, const AttentionStep& args) {
  if (!on_cuda(stream)) return false;
  check_cached(args.attention);
  check_looks_back(args.attention.sequences);
  const AttentionShape& shape = args.attention.shape;
  const int64_t rows = args.attention.q.rows();
  if (args.k) {
    check_attention_matrix(args.k, "k", rows, shape.kv_head_count * shape.head_dim);
    check_attention_matrix(args.v, "v", rows, shape.kv_head_count * shape.head_dim);
  }
  if (args.rotary_dim > 0) {
    const auto check_angles = [&](const char* name, const TensorView& table) {
      check_typed(name, table, DType::kF32, table.rows(), args.rotary_dim);
      JIGE_CHECK(table.row_stride == args.q_cos_sin.row_stride, "tables of two strides");
    };
    check_angles("q_cos_sin", args.q_cos_sin);
    if (args.k) check_angles("k_cos_sin", args.k_cos_sin);
    for (const SequenceSpan& sequence : args.attention.sequences) {
      const int64_t end = int64_t{sequence.context_count} + sequence.row_count;
      JIGE_CHECK(end <= args.q_cos_sin.rows(), "{} positions of a table of {}", end,
                 args.q_cos_sin.rows());
    }
  }
  return attention_step_on_gpu(stream, args);
}

}  // namespace jige::ops
