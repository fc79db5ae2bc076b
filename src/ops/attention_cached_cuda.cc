#include "ops/attention_cached_cuda.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/attention_cached.h"
#include "kernels/cuda/kv_append.h"
#include "ops/attention_schedule.h"
#include "ops/kernel_rows.h"
#include "ops/step_tables.h"

namespace jige::ops {
namespace {

// The work of a call, in the order in which it stands in one table.
struct GpuTables {
  std::vector<cuda::CachedSequence> sequences;
  std::vector<cuda::CachedItem> few, tiles, merges;
  std::vector<int32_t> blocks;
  int32_t few_rows_max = 0;
  int64_t partial_rows = 0;
};

// Keys that are seen of a sequence's rows [begin, end).
struct SeenKeys {
  int64_t begin, end;
};
SeenKeys seen_keys(const SequenceSpan& sequence, int64_t window, int64_t begin, int64_t end) {
  const int64_t first = sequence.context_count + begin;
  return {window > 0 ? std::max<int64_t>(0, first - window + 1) : 0, sequence.context_count + end};
}

int64_t keys_of_split(int32_t rows, const SeenKeys& seen) {
  if (rows <= cuda::kCachedFewRows) return cuda::kCachedFewKeys;
  if (rows > cuda::kCachedSomeRows) return seen.end;
  const int64_t least = (seen.end - seen.begin - 1) / cuda::kCachedSomeSplits + 1;
  return (least - 1) / cuda::kCachedSomeKeys * cuda::kCachedSomeKeys + cuda::kCachedSomeKeys;
}

// Cuts the newest sequence.
void add_items(const SequenceSpan& span, const SeenKeys& seen, const StepTables::Kind& kind,
               GpuTables* tables) {
  cuda::CachedSequence& sequence = tables->sequences.back();
  const auto index = static_cast<int32_t>(tables->sequences.size()) - 1;
  const int64_t keys = keys_of_split(span.row_count, seen);
  sequence.split_keys = static_cast<int32_t>(keys);
  sequence.split_begin = static_cast<int32_t>(seen.begin / keys);
  sequence.split_count = static_cast<int32_t>((seen.end - 1) / keys + 1 - seen.begin / keys);
  const bool few = span.row_count <= cuda::kCachedFewRows;
  if (few) tables->few_rows_max = std::max(tables->few_rows_max, span.row_count);
  for (int32_t i = 0; i < sequence.split_count; ++i) {
    const int32_t split = sequence.split_begin + i;
    if (few) {
      tables->few.push_back({index, 0, split, 0});
      continue;
    }
    for (int64_t row = 0; row < int64_t{span.row_count} * kind.heads; row += kind.tile_rows) {
      tables->tiles.push_back({index, static_cast<int32_t>(row), split, 0});
    }
  }
  if (sequence.split_count == 1) return;
  sequence.partials_begin = static_cast<int32_t>(tables->partial_rows);
  tables->partial_rows += int64_t{sequence.split_count} * span.row_count;
  if (few && !kind.merges_few) return;
  for (int32_t row = 0; row < span.row_count; ++row) tables->merges.push_back({index, row, 0, 0});
}

// Tiles that see more keys come first.
void sort_tiles(const AttentionCached& args, int64_t window, int32_t tile_rows, GpuTables* tables) {
  const int64_t heads = args.shape.head_count / args.shape.kv_head_count;
  const auto keys_of = [&](const cuda::CachedItem& item) {
    const SequenceSpan& span = args.sequences[static_cast<size_t>(item.sequence)];
    const int64_t end = (int64_t{item.row_begin} + tile_rows - 1) / heads + 1;
    const SeenKeys seen =
        seen_keys(span, window, item.row_begin / heads, std::min<int64_t>(end, span.row_count));
    const int64_t keys = tables->sequences[static_cast<size_t>(item.sequence)].split_keys;
    return std::min(seen.end, (item.split + 1) * keys) - std::max(seen.begin, item.split * keys);
  };
  std::stable_sort(tables->tiles.begin(), tables->tiles.end(),
                   [&](const auto& a, const auto& b) { return keys_of(a) > keys_of(b); });
}

// The least count of the few that counts are padded to: at most an eighth more.
int64_t padded(int64_t count) {
  constexpr uint64_t kSteps = 8;
  const auto least = static_cast<uint64_t>(count);
  const uint64_t step = std::max<uint64_t>(1, std::bit_floor(least) / kSteps);
  return static_cast<int64_t>((least + step - 1) / step * step);
}

void pad(std::vector<cuda::CachedItem>* items) {
  items->resize(static_cast<size_t>(padded(static_cast<int64_t>(items->size()))), {-1, 0, 0, 0});
}

GpuTables make_tables(const AttentionCached& args, const StepTables::Kind& kind) {
  GpuTables tables;
  for (const SequenceSpan& span : args.sequences) {
    if (span.row_count == 0) {
      tables.sequences.push_back({});
      continue;
    }
    const SeenKeys seen = seen_keys(span, kind.window, 0, span.row_count);
    const int64_t first = seen.begin / kKvBlockTokens;
    const auto blocks_begin = static_cast<int64_t>(tables.blocks.size()) - first;
    tables.sequences.push_back({.row_begin = span.row_begin,
                                .row_count = span.row_count,
                                .context_count = span.context_count,
                                .blocks_begin = static_cast<int32_t>(blocks_begin)});
    tables.blocks.insert(tables.blocks.end(), span.blocks + first,
                         span.blocks + (seen.end - 1) / kKvBlockTokens + 1);
    add_items(span, seen, kind, &tables);
  }
  sort_tiles(args, kind.window, kind.tile_rows, &tables);
  pad(&tables.few);
  pad(&tables.tiles);
  pad(&tables.merges);
  tables.partial_rows = padded(tables.partial_rows);
  return tables;
}

// Appends the bytes of an array, and says where they are.
template <typename T>
size_t append(std::vector<std::byte>* table, const std::vector<T>& values) {
  const size_t at = table->size();
  table->resize(at + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(table->data() + at, values.data(), values.size() * sizeof(T));
  return at;
}

// Sends the tables; where kernels have them.
cuda::CachedTables send(Stream& stream, const GpuTables& tables) {
  std::vector<std::byte> table;
  const size_t sequences = append(&table, tables.sequences);
  const size_t few = append(&table, tables.few);
  const size_t tiles = append(&table, tables.tiles);
  const size_t merges = append(&table, tables.merges);
  const size_t blocks = append(&table, tables.blocks);
  const auto* base = static_cast<const std::byte*>(
      as_cuda(stream).upload(table.data(), static_cast<int64_t>(table.size())));
  const auto items = [base](size_t at) {
    return static_cast<const cuda::CachedItem*>(static_cast<const void*>(base + at));
  };
  return {.sequences =
              static_cast<const cuda::CachedSequence*>(static_cast<const void*>(base + sequences)),
          .blocks = static_cast<const int32_t*>(static_cast<const void*>(base + blocks)),
          .few = items(few),
          .tiles = items(tiles),
          .merges = items(merges),
          .few_items = static_cast<int32_t>(tables.few.size()),
          .tile_items = static_cast<int32_t>(tables.tiles.size()),
          .merge_items = static_cast<int32_t>(tables.merges.size()),
          .few_rows_max = tables.few_rows_max,
          .partial_rows = tables.partial_rows};
}

// The tables that an earlier call has sent, or new ones.
cuda::CachedTables tables_of(Stream& stream, const AttentionCached& args,
                             const StepTables::Kind& kind) {
  if (args.tables) {
    for (const StepTables::Entry& entry : args.tables->entries) {
      if (entry.kind == kind) return entry.tables;
    }
  }
  for (const SequenceSpan& sequence : args.sequences) {
    check_seen_blocks(sequence, args.shape, args.cache);
  }
  const cuda::CachedTables tables = send(stream, make_tables(args, kind));
  if (args.tables) args.tables->entries.push_back({kind, tables});
  return tables;
}

bool in_8_bits(const KvCacheView& cache) { return cache.dtype == DType::kI8; }

// Of a cache in 8 bits any, since nobody asks.
cpu::ElementType cache_type(const KvCacheView& cache) {
  return in_8_bits(cache) ? cpu::ElementType::kF32 : element_type(cache.dtype);
}

cuda::CachedAttention attention_of(const AttentionCached& args) {
  const AttentionShape& shape = args.shape;
  const int64_t heads = shape.head_count / shape.kv_head_count;
  JIGE_CHECK(args.q.rows() * heads * heads <= UINT32_MAX, "{} rows of {} heads a key",
             args.q.rows(), heads);
  cuda::CachedAttention attention = {};
  attention.dst = rows_of(args.dst);
  attention.q = const_rows_of(args.q);
  attention.cache = args.cache.data;
  attention.cache_type = cache_type(args.cache);
  attention.in_8_bits = in_8_bits(args.cache);
  attention.head_count = static_cast<int32_t>(shape.head_count);
  attention.kv_head_count = static_cast<int32_t>(shape.kv_head_count);
  attention.head_dim = static_cast<int32_t>(shape.head_dim);
  attention.values_in_keys = args.latent_columns > 0;
  attention.value_columns =
      static_cast<int32_t>(args.latent_columns > 0 ? args.latent_columns : shape.head_dim);
  attention.window = attention_window(shape);
  attention.scale = static_cast<float>(shape.scale);
  attention.cap = static_cast<float>(shape.cap);
  attention.sinks = shape.sinks;
  return attention;
}

cuda::CachedAppend append_of(const AttentionStep& args) {
  cuda::CachedAppend append = {};
  if (args.k) {
    append.k = const_rows_of(args.k);
    append.v = const_rows_of(args.v);
  }
  if (args.rotary_dim == 0) return append;
  append.q_angles = args.q_cos_sin.as<float>();
  if (args.k) append.k_angles = args.k_cos_sin.as<float>();
  append.angle_stride = args.q_cos_sin.row_stride;
  append.rotary_dim = static_cast<int32_t>(args.rotary_dim);
  return append;
}

// Puts the work on the stream.
void attend(Stream& stream, const AttentionCached& args, cuda::CachedAttention* attention) {
  const cuda::LaunchStream launch = launch_stream(stream);
  attention->tile_rows = cuda::cached_tile_rows(launch, *attention, args.q.rows());
  static_cast<cuda::CachedTables&>(*attention) =
      tables_of(stream, args,
                {.window = attention->window,
                 .heads = attention->head_count / attention->kv_head_count,
                 .tile_rows = attention->tile_rows,
                 .merges_few = !cuda::cached_merges_few(*attention)});
  if (attention->few_items > 0 && cuda::cached_merges_few(*attention)) {
    attention->counters = static_cast<int32_t*>(
        as_cuda(stream).zeros(cuda::cached_counter_bytes(*attention, std::ssize(args.sequences))));
  }
  attention->partials =
      static_cast<float*>(as_cuda(stream).scratch(cuda::cached_partial_bytes(*attention)));
  cuda::attention_cached(launch, *attention);
}

}  // namespace

void kv_append_on_gpu(Stream& stream, const KvCacheView& cache, const TensorView& k,
                      const TensorView& v, const std::vector<SequenceSpan>& sequences) {
  if (k.rows() == 0) return;
  std::vector<int64_t> slots(static_cast<size_t>(k.rows()), -1);
  for (const SequenceSpan& sequence : sequences) {
    for (int32_t i = 0; i < sequence.row_count; ++i) {
      const int64_t position = int64_t{sequence.context_count} + i;
      slots[static_cast<size_t>(sequence.row_begin + i)] =
          sequence.blocks[position / kKvBlockTokens] * kKvBlockTokens + position % kKvBlockTokens;
    }
  }
  cuda::KvAppend append;
  append.cache = cache.data;
  append.cache_type = cache_type(cache);
  append.in_8_bits = in_8_bits(cache);
  append.k = const_rows_of(k);
  append.v = const_rows_of(v);
  append.slots = static_cast<const int64_t*>(
      as_cuda(stream).upload(slots.data(), k.rows() * static_cast<int64_t>(sizeof(int64_t))));
  append.rows = k.rows();
  append.kv_head_count = static_cast<int32_t>(cache.kv_head_count);
  append.head_dim = static_cast<int32_t>(cache.head_dim);
  cuda::kv_append(launch_stream(stream), append);
}

void attention_cached_on_gpu(Stream& stream, const AttentionCached& args) {
  const bool any_row = std::any_of(args.sequences.begin(), args.sequences.end(),
                                   [](const SequenceSpan& s) { return s.row_count > 0; });
  if (!any_row) return;
  cuda::CachedAttention attention = attention_of(args);
  attend(stream, args, &attention);
}

bool attention_step_on_gpu(Stream& stream, const AttentionStep& args) {
  const AttentionCached& attended = args.attention;
  const bool few = std::all_of(
      attended.sequences.begin(), attended.sequences.end(),
      [](const SequenceSpan& s) { return s.row_count > 0 && s.row_count <= cuda::kCachedFewRows; });
  if (!few || attended.sequences.empty()) return false;
  cuda::CachedAttention attention = attention_of(attended);
  attention.append = append_of(args);
  if (!cuda::cached_appends(attention)) return false;
  attend(stream, attended, &attention);
  return true;
}

}  // namespace jige::ops
