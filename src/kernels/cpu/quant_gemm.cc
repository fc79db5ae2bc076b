#include "kernels/cpu/quant_gemm.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/quant_pack.h"
#include "kernels/cpu/stream_ahead.h"

namespace jige::cpu {
namespace {

// Rows quantised at a time: half of a second-level cache, and so many that reading the weights
// again for the next ones does not show.
constexpr int64_t kLeftBytesMax = int64_t{512} << 10;
constexpr int64_t kTaskRowsMin = 48;
constexpr int64_t kTaskRowsMax = 384;
// Tasks of each thread, of this many panels at least.
constexpr int64_t kQuantTasksPerThread = 8;
constexpr int64_t kQuantTaskPanelsMin = 2;
// Panels that the calls of some rows read in turns: they stay in a second-level cache.
constexpr int64_t kCallPanelBytes = int64_t{256} << 10;
// A product of up to this many rows waits for panels from memory.
constexpr int64_t kFewRowsOfBlocks = 48;
constexpr int64_t kForeseenRows = 4;
// Products below this many multiplications are not worth waking the team for.
constexpr int64_t kQuantSerialWork = 1 << 18;
// Numbers that a thread should quantise for a loop to be worth sharing.
constexpr int64_t kNumbersPerRange = 1 << 15;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t depth_blocks(int64_t depth) { return divide_up(depth, kQuantBlock); }

// Equal parts of at most `most`, in whole steps.
int64_t even_part(int64_t count, int64_t most, int64_t step) {
  return divide_up(divide_up(count, divide_up(count, most)), step) * step;
}

struct QuantBlocking {
  int64_t tile_rows;  // of one micro-kernel call
  int64_t task_rows;
  int64_t row_tasks;
  int64_t task_panels;
  int64_t column_tasks;

  int64_t tasks() const { return row_tasks * column_tasks; }
};

bool is_serial(const QuantProduct& product) {
  return product.rows * product.columns * product.depth < kQuantSerialWork;
}

QuantBlocking choose_quant_blocking(const QuantEngine& engine, const QuantProduct& product,
                                    int threads) {
  QuantBlocking cut;
  // Shares of a few rows are alike, so that none is left with few sums to keep the units busy.
  cut.tile_rows = product.rows <= engine.rows_max ? std::max<int64_t>(product.rows, 1)
                                                  : even_part(product.rows, engine.rows, 1);
  const int64_t row_bytes =
      std::max<int64_t>(depth_blocks(product.depth), 1) * static_cast<int64_t>(sizeof(QuantBlock));
  const int64_t rows_max = std::clamp(kLeftBytesMax / row_bytes, kTaskRowsMin, kTaskRowsMax);
  cut.task_rows = even_part(product.rows, rows_max, cut.tile_rows);
  cut.row_tasks = divide_up(product.rows, cut.task_rows);
  const int64_t panels = divide_up(product.columns, kQuantColumns);
  const int64_t parts = threads > 1 ? divide_up(kQuantTasksPerThread * threads, cut.row_tasks) : 1;
  cut.task_panels = std::min(panels, std::max(divide_up(panels, parts), kQuantTaskPanelsMin));
  cut.column_tasks = divide_up(panels, cut.task_panels);
  return cut;
}

int64_t left_bytes(const QuantBlocking& cut, int64_t depth) {
  return cut.task_rows * depth_blocks(depth) * static_cast<int64_t>(sizeof(QuantBlock));
}

std::byte* row_at(const Rows& rows, int64_t row, int64_t column) {
  const int64_t element = row * rows.stride + column;
  return static_cast<std::byte*>(rows.data) + element * (rows.type == ElementType::kF32 ? 4 : 2);
}

ConstRows rows_from(const ConstRows& rows, int64_t row) {
  const int64_t bytes = row * rows.stride * (rows.type == ElementType::kF32 ? 4 : 2);
  return {static_cast<const std::byte*>(rows.data) + bytes, rows.type, rows.stride};
}

class QuantRun {
 public:
  QuantRun(const QuantEngine& engine, const QuantProduct& product, const QuantBlocking& cut)
      : engine_(engine), product_(product), cut_(cut), blocks_(depth_blocks(product.depth)) {}

  // Tasks of the same rows follow each other. `rows_in_left` are those that are quantised there,
  // or negative; afterwards they are this task's.
  void run_task(int64_t task, QuantBlock* left, int64_t* rows_in_left) const {
    const int64_t row_begin = task / cut_.column_tasks * cut_.task_rows;
    const int64_t row_count = std::min(cut_.task_rows, product_.rows - row_begin);
    if (*rows_in_left != row_begin) {
      for (int64_t row = 0; row < row_count; row += cut_.tile_rows) {
        quant_rows({.src = rows_from(product_.left, row_begin + row),
                    .row_count = std::min(cut_.tile_rows, row_count - row),
                    .depth = product_.depth,
                    .weights = product_.format,
                    .dst = left + row * blocks_});
      }
      *rows_in_left = row_begin;
    }
    const int64_t column = task % cut_.column_tasks * cut_.task_panels * kQuantColumns;
    const int64_t end = std::min(column + cut_.task_panels * kQuantColumns, product_.columns);
    // One call's rows read each panel once; more find it in a cache again. Panels by themselves
    // would be too short for a processor to foresee what is read.
    const int64_t panel_bytes =
        std::max<int64_t>(quant_panel_bytes(product_.format, product_.depth), 1);
    const int64_t step = row_count <= cut_.tile_rows
                             ? end - column
                             : std::max<int64_t>(kCallPanelBytes / panel_bytes, 1) * kQuantColumns;
    for (int64_t at = column; at < end; at += step) {
      run_columns(row_begin, row_count, at, std::min(step, end - at), left);
    }
  }

 private:
  // Whether the processor by itself fetches panels as fast as memory gives them: a row of whole
  // bytes, or some, are too little arithmetic to keep it from that.
  bool foreseen() const {
    return product_.format == QuantFormat::kQ8 && product_.rows <= kForeseenRows;
  }

  // All rows of a task times some columns.
  void run_columns(int64_t row_begin, int64_t row_count, int64_t column, int64_t column_count,
                   const QuantBlock* left) const {
    const int64_t panel_bytes = quant_panel_bytes(product_.format, product_.depth);
    QuantMicroArgs args;
    args.blocks = blocks_;
    args.columns = column_count;
    args.panels = product_.panels + column / kQuantColumns * panel_bytes;
    args.panel_bytes = panel_bytes;
    args.ahead = product_.rows <= kFewRowsOfBlocks && !foreseen() ? stream_ahead_bytes() : 0;
    args.bias = product_.bias ? product_.bias + column : nullptr;
    args.out_is_bf16 = product_.out.type == ElementType::kBf16;
    args.out_stride = product_.out.stride;
    for (int64_t row = 0; row < row_count; row += cut_.tile_rows) {
      args.rows = static_cast<int>(std::min(cut_.tile_rows, row_count - row));
      args.left = left + row * blocks_;
      args.out = row_at(product_.out, row_begin + row, column);
      engine_.micro[static_cast<size_t>(product_.format)](args);
    }
  }

  const QuantEngine& engine_;
  const QuantProduct& product_;
  const QuantBlocking cut_;
  const int64_t blocks_;
};

}  // namespace

void quant_gemm(CpuDevice& device, const QuantEngine& engine, const QuantProduct& product) {
  if (product.rows <= 0 || product.columns <= 0) return;
  const int threads = is_serial(product) ? 1 : device.team().size();
  const QuantBlocking cut = choose_quant_blocking(engine, product, threads);
  const QuantRun run(engine, product, cut);
  std::vector<int64_t> rows_in_left(static_cast<size_t>(device.team().size()), -1);
  device.team().parallel_for(
      cut.tasks(), threads > 1 ? 1 : cut.tasks(), [&](int64_t begin, int64_t end, int worker) {
        auto* left =
            static_cast<QuantBlock*>(device.scratch(worker, left_bytes(cut, product.depth)));
        for (int64_t task = begin; task < end; ++task) {
          run.run_task(task, left, &rows_in_left[static_cast<size_t>(worker)]);
        }
      });
}

int64_t quant_thread_scratch_bytes(const QuantEngine& engine, const QuantProduct& product,
                                   int threads) {
  if (product.rows <= 0) return 0;
  return left_bytes(choose_quant_blocking(engine, product, is_serial(product) ? 1 : threads),
                    product.depth);
}

int64_t quant_panel_bytes(QuantFormat format, int64_t depth) {
  return depth_blocks(depth) * with_format(format, []<QuantFormat kFormat>() {
           return QuantTraits<kFormat>::kBlockBytes;
         });
}

int64_t quant_panels_bytes(QuantFormat format, int64_t columns, int64_t depth) {
  return divide_up(columns, kQuantColumns) * quant_panel_bytes(format, depth);
}

void quant_pack(CpuDevice& device, const QuantPack& args) {
  if (args.part_count <= 0) return;
  const int64_t panel_bytes = quant_panel_bytes(args.format, args.depth);
  const int64_t end = args.part_begin + args.part_count;
  const auto columns_of = [&](int64_t begin, int64_t count) {
    return QuantWeights{.format = args.format,
                        .src = rows_from(args.part, begin - args.part_begin),
                        .scales = args.scales.from_row(begin - args.part_begin),
                        .column_begin = begin,
                        .column_count = count,
                        .depth = args.depth,
                        .panels = args.panels + begin / kQuantColumns * panel_bytes,
                        .panel_bytes = panel_bytes};
  };
  // Ranges of whole panels, so that no two threads write the same lines.
  const int64_t first = args.part_begin / kQuantColumns;
  const int64_t panels = divide_up(end, kQuantColumns) - first;
  const int64_t grain =
      divide_up(kNumbersPerRange, kQuantColumns * std::max<int64_t>(args.depth, 1));
  device.team().parallel_for(panels, grain, [&](int64_t from, int64_t to, int) {
    const int64_t begin = std::max((first + from) * kQuantColumns, args.part_begin);
    const int64_t stop = std::min((first + to) * kQuantColumns, end);
    quant_weights(columns_of(begin, stop - begin));
  });
  if (end == args.columns && end % kQuantColumns != 0) {
    quant_zero_columns(columns_of(end, kQuantColumns - end % kQuantColumns));
  }
}

}  // namespace jige::cpu
