#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/gemm_sums.h"

namespace jige::cpu {
namespace {

// Sizes of a task. A left block of 192 x 256 f32 takes 192 KiB and the sums 384 KiB of a
// second-level cache of 1 MiB; every row of the left is packed once for these columns.
constexpr int64_t kTaskRows = 192;
constexpr int64_t kTaskColumns = 512;
// Fewer columns than this to a task and packing the left shows; but a product of few rows, where it
// does not, is cut down to the panels of one micro-kernel call.
constexpr int64_t kTaskColumnsMin = 128;
constexpr int64_t kSkinnyPanels = 4;
constexpr int64_t kTasksPerThread = 4;
// Products below this many multiplications are not worth waking the team for.
constexpr int64_t kSerialWork = 1 << 16;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// How a product is cut into tasks.
struct Blocking {
  int64_t task_rows;    // a multiple of the engine's rows
  int64_t task_panels;
  int64_t depth_block;  // a multiple of the engine's depth step
  int64_t row_tasks;
  int64_t column_tasks;
};

Blocking choose_blocking(const GemmEngine& engine, const GemmProduct& product, int threads) {
  Blocking blocking;
  const bool skinny = product.rows <= engine.rows;
  const int64_t rows_max = gemm_round_up(kTaskRows, engine.rows);
  blocking.row_tasks = divide_up(product.rows, rows_max);
  blocking.task_rows = gemm_round_up(divide_up(product.rows, blocking.row_tasks), engine.rows);
  blocking.row_tasks = divide_up(product.rows, blocking.task_rows);

  const int64_t panels = divide_up(product.columns, engine.columns);
  const int64_t tasks = threads > 1 ? kTasksPerThread * threads : 1;
  const int64_t panels_min = skinny ? kSkinnyPanels : kTaskColumnsMin / engine.columns;
  const int64_t panels_max = kTaskColumns / engine.columns;
  const int64_t wanted =
      gemm_round_up(divide_up(panels * blocking.row_tasks, tasks), skinny ? kSkinnyPanels : 1);
  blocking.task_panels = std::min(panels, std::clamp(wanted, panels_min, panels_max));
  blocking.column_tasks = divide_up(panels, blocking.task_panels);

  // One row block reads every panel once: it may as well run along the whole depth.
  const int64_t depth_max = skinny ? std::max<int64_t>(product.depth, 1) : engine.depth_block;
  const int64_t stretches = std::max<int64_t>(divide_up(product.depth, depth_max), 1);
  blocking.depth_block = gemm_round_up(divide_up(product.depth, stretches), engine.depth_step);
  return blocking;
}

// The scratch of one worker: packed left, packed right, sums.
struct Scratch {
  std::byte* left;
  std::byte* right;
  float* sums;
  int64_t sums_stride;
};

class Product {
 public:
  Product(const GemmEngine& engine, const GemmProduct& product, const Blocking& blocking)
      : engine_(engine), product_(product), blocking_(blocking) {
    left_bytes_ = gemm_round_up(
        blocking.task_rows / engine.rows * gemm_left_block_bytes(engine, blocking.depth_block), 64);
    right_bytes_ = product.right_panels
                       ? 0
                       : blocking.task_panels * gemm_panel_bytes(engine, blocking.depth_block);
    // Rows of sums a cache line off a power of two, so that they do not share cache sets.
    sums_stride_ = blocking.task_panels * engine.columns + 16;
  }

  int64_t scratch_bytes() const {
    return left_bytes_ + right_bytes_ + blocking_.task_rows * sums_stride_ * 4;
  }
  Scratch scratch_in(void* memory) const {
    std::byte* bytes = static_cast<std::byte*>(memory);
    return {bytes, bytes + left_bytes_,
            reinterpret_cast<float*>(bytes + left_bytes_ + right_bytes_), sums_stride_};
  }

  // Tasks that share columns follow each other, so that the panels stay in a shared cache.
  void run_task(int64_t task, const Scratch& scratch) const {
    const int64_t row = task % blocking_.row_tasks * blocking_.task_rows;
    const int64_t column = task / blocking_.row_tasks * blocking_.task_panels * engine_.columns;
    const GemmPackRange rows = {row, std::min(blocking_.task_rows, product_.rows - row), 0, 0};
    const GemmPackRange columns = {
        column,
        std::min(blocking_.task_panels * engine_.columns, product_.columns - column), 0, 0};
    int64_t depth = 0;
    do {
      run_stretch(rows, columns, depth, scratch);
      depth += blocking_.depth_block;
    } while (depth < product_.depth);
  }

 private:
  // One stretch of the depth of a task.
  void run_stretch(GemmPackRange rows, GemmPackRange columns, int64_t depth,
                   const Scratch& scratch) const {
    const int64_t count = std::min(blocking_.depth_block, product_.depth - depth);
    rows.depth_begin = columns.depth_begin = depth;
    rows.depth_count = columns.depth_count = count;
    gemm_pack_left(engine_, product_.left, rows, scratch.left);
    GemmMicroArgs args;
    args.depth = gemm_padded_depth(engine_, count);
    args.right_stride =
        gemm_panel_bytes(engine_, product_.right_panels ? product_.depth : count);
    const std::byte* right = scratch.right;
    if (product_.right_panels) {
      right = static_cast<const std::byte*>(product_.right_panels) +
              columns.lane_begin / engine_.columns * args.right_stride +
              gemm_panel_bytes(engine_, depth);
    } else {
      gemm_pack_right(engine_, product_.right, columns, args.right_stride, scratch.right);
    }
    args.sums_stride = scratch.sums_stride;
    args.from_zero = depth == 0 && !product_.accumulate;

    const int64_t panels = divide_up(columns.lane_count, engine_.columns);
    const int64_t group = rows.lane_count <= engine_.rows ? panels : engine_.panel_group;
    for (int64_t panel = 0; panel < panels; panel += group) {
      args.panels = std::min(group, panels - panel);
      args.right = right + panel * args.right_stride;
      run_panels(rows, columns, panel, args, scratch);
    }
  }

  // All row blocks of a task times some panels.
  void run_panels(const GemmPackRange& rows, const GemmPackRange& columns, int64_t panel,
                  GemmMicroArgs& args, const Scratch& scratch) const {
    const bool first = rows.depth_begin == 0;
    const bool last = rows.depth_begin + rows.depth_count >= product_.depth;
    const int64_t block_bytes = gemm_left_block_bytes(engine_, rows.depth_count);
    for (int64_t row = 0; row < rows.lane_count; row += engine_.rows) {
      args.rows = static_cast<int>(std::min<int64_t>(engine_.rows, rows.lane_count - row));
      args.left = scratch.left + row / engine_.rows * block_bytes;
      args.sums = scratch.sums + row * scratch.sums_stride + panel * engine_.columns;
      const GemmSumsBlock block =
          out_block(args, rows.lane_begin + row, columns, panel * engine_.columns);
      if (first && product_.accumulate) gemm_load_sums(block, args.panels * engine_.columns);
      engine_.micro(args);
      if (last) {
        const int64_t column = columns.lane_begin + panel * engine_.columns;
        gemm_store_sums(block, product_.bias ? product_.bias + column : nullptr);
      }
    }
  }

  GemmSumsBlock out_block(const GemmMicroArgs& args, int64_t row, const GemmPackRange& columns,
                          int64_t offset) const {
    const int64_t element = row * product_.out_stride + columns.lane_begin + offset;
    return {.sums = args.sums,
            .sums_stride = args.sums_stride,
            .out = static_cast<std::byte*>(product_.out) + dtype_bytes(product_.out_dtype, element),
            .out_dtype = product_.out_dtype,
            .out_stride = product_.out_stride,
            .rows = args.rows,
            .columns = std::min(args.panels * engine_.columns, columns.lane_count - offset)};
  }

  const GemmEngine& engine_;
  const GemmProduct& product_;
  const Blocking blocking_;
  int64_t left_bytes_;
  int64_t right_bytes_;
  int64_t sums_stride_;
};

}  // namespace

void gemm(CpuDevice& device, const GemmEngine& engine, const GemmProduct& product) {
  JIGE_CHECK(!product.accumulate || (product.out_dtype == DType::kF32 && !product.bias),
             "only f32 products accumulate, and without a bias");
  if (product.rows <= 0 || product.columns <= 0) return;
  const bool serial = product.rows * product.columns * product.depth < kSerialWork;
  const Blocking blocking =
      choose_blocking(engine, product, serial ? 1 : device.team().size());
  const Product run(engine, product, blocking);
  const int64_t tasks = blocking.row_tasks * blocking.column_tasks;
  device.team().parallel_for(
      tasks, serial ? tasks : 1, [&](int64_t begin, int64_t end, int worker) {
        const Scratch scratch = run.scratch_in(device.scratch(worker, run.scratch_bytes()));
        if (engine.begin) engine.begin();
        for (int64_t task = begin; task < end; ++task) run.run_task(task, scratch);
        if (engine.end) engine.end();
      });
}

int64_t gemm_panels_bytes(const GemmEngine& engine, int64_t lanes, int64_t depth) {
  return divide_up(lanes, engine.columns) * gemm_panel_bytes(engine, depth);
}

void gemm_pack_panels(CpuDevice& device, const GemmEngine& engine, const GemmPanels& panels,
                      const GemmOperand& part, const GemmPackRange& range) {
  const int64_t columns = engine.columns;
  const int64_t panel_bytes = gemm_panel_bytes(engine, panels.depth);
  const int64_t lane_end = range.lane_begin + range.lane_count;
  const int64_t depth_end = range.depth_begin + range.depth_count;
  // Whole pieces have no neighbour part within their panel and their depth step.
  const bool whole_depth = range.depth_begin % engine.depth_step == 0 &&
                           (depth_end % engine.depth_step == 0 || depth_end == panels.depth);
  const int64_t panel_begin = range.lane_begin / columns;
  const int64_t panel_end = divide_up(lane_end, columns);
  const auto pack_panel = [&](int64_t panel) {
    const int64_t begin = std::max(panel * columns, range.lane_begin);
    const int64_t end = std::min((panel + 1) * columns, lane_end);
    // The source counts from its own first lane and depth.
    const GemmPackRange source = {begin - range.lane_begin, end - begin, 0, range.depth_count};
    const bool whole_lanes = begin == panel * columns &&
                             (end == (panel + 1) * columns || end == panels.lanes);
    if (whole_lanes && whole_depth) {
      std::byte* dst = static_cast<std::byte*>(panels.data) + panel * panel_bytes +
                       gemm_panel_bytes(engine, range.depth_begin);
      gemm_pack_right(engine, part, source, panel_bytes, dst);
      return;
    }
    GemmOperand rest = part;
    const int64_t skipped = (begin - range.lane_begin) * (part.depth_across ? 1 : part.row_stride);
    rest.data = static_cast<const std::byte*>(part.data) + dtype_bytes(part.dtype, skipped);
    gemm_pack_right_elements(engine, rest, {begin, end - begin, range.depth_begin, range.depth_count},
                             panels.depth, panels.data);
    const int64_t lane_pad = end == panels.lanes ? (panel + 1) * columns - end : 0;
    gemm_zero_right_elements(
        engine, {end, lane_pad, range.depth_begin, range.depth_count}, panels.depth, panels.data);
    if (depth_end == panels.depth) {
      gemm_zero_right_elements(
          engine, {begin, end - begin + lane_pad, depth_end,
                   gemm_padded_depth(engine, depth_end) - depth_end},
          panels.depth, panels.data);
    }
  };
  device.team().parallel_for(panel_end - panel_begin, 1,
                             [&](int64_t begin, int64_t end, int) {
                               for (int64_t i = begin; i < end; ++i) pack_panel(panel_begin + i);
                             });
}

}  // namespace jige::cpu
