#include "kernels/cpu/gemm.h"

#include <immintrin.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/gemm_many_rows.h"
#include "kernels/cpu/gemm_sums.h"
#include "kernels/cpu/stream_ahead.h"

namespace jige::cpu {
namespace {

// Left blocks that share the columns of a task that packs its right operand on the way.
constexpr int64_t kLeftBlocksUnpacked = 4;
// Fewer columns than this to a task and packing the left shows; but a product of few rows, where it
// does not, is cut down to the panels of one micro-kernel call.
constexpr int64_t kTaskColumnsMin = 128;
constexpr int64_t kSkinnyPanels = 4;
constexpr int64_t kTasksPerThread = 4;
// A product of up to this many rows reads panels faster than it computes with them, ...
constexpr int64_t kFewRows = 48;
constexpr int64_t kFewRowsDepth = 2048;
constexpr int64_t kFewRowsPanelBytes = int64_t{256} << 10;  // of a second-level cache
// Panels packed by one thread at a time, so that memory rows are read in long pieces; pieces for
// each thread, which even out threads of unequal speed, and the least depth of one.
constexpr int64_t kPackPanels = 32;
constexpr int64_t kPackPiecesPerThread = 8;
constexpr int64_t kPackDepthMin = 256;
// Products below this many multiplications are not worth waking the team for.
constexpr int64_t kSerialWork = 1 << 16;

bool is_small(const GemmProduct& product) {
  return product.rows * product.columns * product.depth < kSerialWork;
}

// How a product is cut into tasks.
struct Blocking {
  int64_t block_rows;  // of one micro-kernel call
  int64_t left_rows;   // packed at a time; a multiple of block_rows
  int64_t task_rows;   // likewise
  int64_t task_panels;
  int64_t depth_block;  // a multiple of the engine's depth step
  int64_t row_tasks;
  int64_t column_tasks;
};

// Rows of a micro-kernel call: all that the registers hold, but equal shares where a product of few
// rows would leave a last call with too few chains to keep the units busy.
int64_t choose_block_rows(const GemmEngine& engine, int64_t rows) {
  if (engine.layout == GemmLayout::kTileBF16 || rows > kFewRows) return engine.rows;
  return gemm_divide_up(rows, gemm_divide_up(rows, engine.rows));
}

Blocking choose_blocking(const GemmEngine& engine, const GemmProduct& product, int threads) {
  Blocking blocking;
  const bool skinny = product.rows <= engine.rows;
  blocking.block_rows = choose_block_rows(engine, product.rows);
  const int64_t rows_max = gemm_round_up(
      product.right_panels ? engine.task_rows : kLeftBlocksUnpacked * engine.task_rows,
      blocking.block_rows);
  blocking.row_tasks = gemm_divide_up(product.rows, rows_max);
  blocking.task_rows =
      gemm_round_up(gemm_divide_up(product.rows, blocking.row_tasks), blocking.block_rows);
  blocking.row_tasks = gemm_divide_up(product.rows, blocking.task_rows);
  blocking.left_rows =
      std::min(gemm_round_up(engine.task_rows, blocking.block_rows), blocking.task_rows);

  const int64_t panels = gemm_divide_up(product.columns, engine.columns);
  const int64_t tasks = threads > 1 ? kTasksPerThread * threads : 1;
  const int64_t panels_min = skinny ? kSkinnyPanels : kTaskColumnsMin / engine.columns;
  const int64_t panels_max = engine.task_columns / engine.columns;
  const int64_t wanted =
      gemm_round_up(gemm_divide_up(panels * blocking.row_tasks, tasks), skinny ? kSkinnyPanels : 1);
  blocking.task_panels = std::min(panels, std::clamp(wanted, panels_min, panels_max));
  blocking.column_tasks = gemm_divide_up(panels, blocking.task_panels);

  // Panels of packed weights are best read in long stretches; one row block, which reads each once,
  // may as well run along the whole depth.
  const int64_t depth_max = skinny ? std::max<int64_t>(product.depth, 1)
                            : product.rows <= kFewRows
                                ? std::max<int64_t>(kFewRowsDepth, engine.depth_block)
                                : engine.depth_block;
  const int64_t stretches = std::max<int64_t>(gemm_divide_up(product.depth, depth_max), 1);
  blocking.depth_block = gemm_round_up(gemm_divide_up(product.depth, stretches), engine.depth_step);
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
    left_bytes_ =
        gemm_round_up(gemm_left_block_bytes(engine, blocking.depth_block, blocking.left_rows), 64);
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
  // `left_packed`: whether a task before left in the scratch what all share (left_stays), which
  // this one does as well.
  void run_task(int64_t task, const Scratch& scratch, bool* left_packed) const {
    const int64_t row = task % blocking_.row_tasks * blocking_.task_rows;
    const int64_t column = task / blocking_.row_tasks * blocking_.task_panels * engine_.columns;
    const GemmPackRange rows = {row, std::min(blocking_.task_rows, product_.rows - row), 0, 0};
    const GemmPackRange columns = {
        column, std::min(blocking_.task_panels * engine_.columns, product_.columns - column), 0, 0};
    int64_t depth = 0;
    do {
      run_stretch(rows, columns, depth, scratch, *left_packed);
      depth += blocking_.depth_block;
    } while (depth < product_.depth);
    *left_packed = left_stays();
  }

 private:
  // One stretch of the depth of a task.
  void run_stretch(GemmPackRange rows, GemmPackRange columns, int64_t depth, const Scratch& scratch,
                   bool left_packed) const {
    const int64_t count = std::min(blocking_.depth_block, product_.depth - depth);
    rows.depth_begin = columns.depth_begin = depth;
    rows.depth_count = columns.depth_count = count;
    GemmMicroArgs args;
    args.depth = gemm_padded_depth(engine_, count);
    args.right_stride = gemm_panel_bytes(engine_, product_.right_panels ? product_.depth : count);
    const std::byte* right = scratch.right;
    if (product_.right_panels) {
      right = static_cast<const std::byte*>(product_.right_panels) +
              columns.lane_begin / engine_.columns * args.right_stride +
              gemm_panel_bytes(engine_, depth);
    } else {
      gemm_pack_right(engine_, product_.right, columns, args.right_stride, scratch.right);
    }
    args.left_stride = gemm_left_block_bytes(engine_, count, kTileLanes);
    // One row leaves the processor the time to foresee what is read.
    const bool waits = product_.rows > 1 && product_.rows <= kFewRows;
    if (waits && product_.right_panels) args.ahead = stream_ahead_bytes();

    const int64_t panels = gemm_divide_up(columns.lane_count, engine_.columns);
    const int64_t group =
        rows.lane_count <= blocking_.block_rows ? panels : panels_in_turns(args.depth);
    for (int64_t row = 0; row < rows.lane_count; row += blocking_.left_rows) {
      GemmPackRange part = rows;
      part.lane_begin += row;
      part.lane_count = std::min(blocking_.left_rows, rows.lane_count - row);
      if (!left_packed) {
        gemm_pack_left(engine_, product_.left, part, blocking_.block_rows, scratch.left);
      }
      Scratch at = scratch;
      at.sums += row * scratch.sums_stride;
      for (int64_t panel = 0; panel < panels; panel += group) {
        args.panels = std::min(group, panels - panel);
        args.right = right + panel * args.right_stride;
        // The processor foresees the panels of chains by itself.
        const bool fetches = is_tiles() && panel + group < panels;
        args.next = fetches ? right + (panel + group) * args.right_stride : nullptr;
        run_panels(part, columns, panel, args, at);
      }
    }
  }

  // All packed row blocks times some panels.
  void run_panels(const GemmPackRange& rows, const GemmPackRange& columns, int64_t panel,
                  GemmMicroArgs& args, const Scratch& scratch) const {
    const int64_t panel_bytes = gemm_panel_bytes(engine_, rows.depth_count);
    const bool first = rows.depth_begin == 0;
    const bool last = rows.depth_begin + rows.depth_count >= product_.depth;
    for (int64_t row = 0; row < rows.lane_count; row += blocking_.block_rows) {
      args.rows = static_cast<int>(std::min(blocking_.block_rows, rows.lane_count - row));
      args.left = scratch.left + gemm_left_block_bytes(engine_, rows.depth_count, row);
      const int64_t offset = panel * engine_.columns;
      GemmSumsBlock block = out_block(args, rows.lane_begin + row, columns, offset);
      const bool in_place = sums_fit_in_out(block, args.panels);
      if (in_place) {
        block.sums = static_cast<float*>(block.out);
        block.sums_stride = block.out_stride;
      } else {
        block.sums = scratch.sums + row * scratch.sums_stride + offset;
        block.sums_stride = scratch.sums_stride;
      }
      if (args.next) {  // every call fetches its share of the panels to come
        args.next_begin = panel_bytes * row / rows.lane_count;
        args.next_end =
            panel_bytes * std::min(row + blocking_.block_rows, rows.lane_count) / rows.lane_count;
      }
      args.sums = block.sums;
      args.sums_stride = args.from_stride = block.sums_stride;
      args.from = first && !product_.accumulate ? nullptr : block.sums;
      if (first && product_.accumulate && !in_place) {
        gemm_load_sums(block, args.panels * engine_.columns);
      }
      const int64_t rows_left = rows.lane_count - row - args.rows;
      if (in_place && !is_tiles()) {
        args.fetch = out_lines(block, std::min(blocking_.block_rows, rows_left));
      }
      engine_.micro(args);
      if (last && (product_.bias || !in_place)) {
        const int64_t column = columns.lane_begin + offset;
        gemm_store_sums(engine_, block, product_.bias ? product_.bias + column : nullptr);
      }
    }
  }

  // Panels, so deep, that the row blocks of a task read in turns. Those of few rows come from
  // memory: one by one they would be too short for the processor to foresee what is read. (Chain
  // engines would take them side by side, which loses; docs/decisions/0001.)
  int64_t panels_in_turns(int64_t depth) const {
    if (engine_.layout != GemmLayout::kPairBF16 || product_.rows > kFewRows) {
      return engine_.panel_group;
    }
    const int64_t bytes = std::max<int64_t>(gemm_panel_bytes(engine_, depth), 1);
    return std::max<int64_t>(kFewRowsPanelBytes / bytes, engine_.panel_group);
  }

  // Whether the whole left is packed at once, as that of few rows is.
  bool left_stays() const {
    return blocking_.left_rows >= product_.rows && blocking_.depth_block >= product_.depth;
  }

  // Whether a call's sums, with all lanes that the micro-kernel writes, are elements of the output.
  bool sums_fit_in_out(const GemmSumsBlock& block, int64_t panels) const {
    const bool whole_tiles = !is_tiles() || block.rows % kTileLanes == 0;
    return block.out_dtype == DType::kF32 && block.columns == panels * engine_.columns &&
           whole_tiles;
  }

  GemmSumsBlock out_block(const GemmMicroArgs& args, int64_t row, const GemmPackRange& columns,
                          int64_t offset) const {
    const int64_t element = row * product_.out_stride + columns.lane_begin + offset;
    return {.out = static_cast<std::byte*>(product_.out) + element * out_bytes_,
            .out_dtype = product_.out_dtype,
            .out_stride = product_.out_stride,
            .rows = args.rows,
            .columns = std::min(args.panels * engine_.columns, columns.lane_count - offset)};
  }

  // The rows of the output behind a block, of the same columns.
  GemmLines out_lines(const GemmSumsBlock& block, int64_t rows) const {
    const int64_t stride = block.out_stride * out_bytes_;
    return {.at = static_cast<const char*>(block.out) + blocking_.block_rows * stride,
            .stride = stride,
            .rows = rows,
            .lines = gemm_divide_up(block.columns * out_bytes_, 64)};
  }

  bool is_tiles() const { return engine_.layout == GemmLayout::kTileBF16; }

  const GemmEngine& engine_;
  const GemmProduct& product_;
  const Blocking blocking_;
  const int64_t out_bytes_ = dtype_bytes(product_.out_dtype, 1);
  int64_t left_bytes_;
  int64_t right_bytes_;
  int64_t sums_stride_;
};

}  // namespace

void gemm(CpuDevice& device, const GemmEngine& engine, const GemmProduct& product) {
  JIGE_CHECK(!product.accumulate || (product.out_dtype == DType::kF32 && !product.bias),
             "only f32 products accumulate, and without a bias");
  if (product.rows <= 0 || product.columns <= 0) return;
  if (gemm_many_rows_suit(engine, product)) {
    gemm_many_rows(device, engine, product);
    return;
  }
  const bool serial = is_small(product);
  const Blocking blocking = choose_blocking(engine, product, serial ? 1 : device.team().size());
  const Product run(engine, product, blocking);
  const int64_t tasks = blocking.row_tasks * blocking.column_tasks;
  std::vector<char> left_packed(static_cast<size_t>(device.team().size()), false);  // by worker
  device.team().parallel_for(
      tasks, serial ? tasks : 1, [&](int64_t begin, int64_t end, int worker) {
        const Scratch scratch = run.scratch_in(device.scratch(worker, run.scratch_bytes()));
        bool packed = left_packed[static_cast<size_t>(worker)];
        if (engine.begin) engine.begin();
        for (int64_t task = begin; task < end; ++task) run.run_task(task, scratch, &packed);
        left_packed[static_cast<size_t>(worker)] = packed;
        if (engine.end) engine.end();
      });
}

int64_t gemm_thread_scratch_bytes(const GemmEngine& engine, const GemmProduct& product,
                                  int threads) {
  if (gemm_many_rows_suit(engine, product)) {
    return gemm_many_rows_scratch_bytes(engine, product, threads);
  }
  const Blocking blocking = choose_blocking(engine, product, is_small(product) ? 1 : threads);
  return Product(engine, product, blocking).scratch_bytes();
}

int64_t gemm_panels_bytes(const GemmEngine& engine, int64_t lanes, int64_t depth) {
  return gemm_divide_up(lanes, engine.columns) * gemm_panel_bytes(engine, depth);
}

namespace {

struct Depths {
  int64_t begin;
  int64_t count;
};

// Packs a piece that shares a panel or a depth step with another part: element by element, with the
// padding where it ends at the last lane or depth.
void pack_shared_piece(const GemmEngine& engine, const GemmPanels& panels, const GemmOperand& piece,
                       const GemmPackRange& range) {
  gemm_pack_right_elements(engine, piece, range, panels.depth, panels.data);
  const int64_t lane_end = range.lane_begin + range.lane_count;
  const int64_t depth_end = range.depth_begin + range.depth_count;
  const int64_t lane_pad =
      lane_end == panels.lanes ? gemm_round_up(lane_end, engine.columns) - lane_end : 0;
  gemm_zero_right_elements(engine, {lane_end, lane_pad, range.depth_begin, range.depth_count},
                           panels.depth, panels.data);
  const int64_t depth_pad =
      depth_end == panels.depth ? gemm_padded_depth(engine, depth_end) - depth_end : 0;
  gemm_zero_right_elements(engine,
                           {range.lane_begin, range.lane_count + lane_pad, depth_end, depth_pad},
                           panels.depth, panels.data);
}

}  // namespace

void gemm_pack_panels(CpuDevice& device, const GemmEngine& engine, const GemmPanels& panels,
                      const GemmOperand& part, const GemmPackRange& range) {
  if (range.lane_count <= 0) return;
  const int64_t columns = engine.columns;
  const int64_t panel_bytes = gemm_panel_bytes(engine, panels.depth);
  const int64_t lane_end = range.lane_begin + range.lane_count;
  const int64_t depth_end = range.depth_begin + range.depth_count;
  const bool whole_depth = range.depth_begin % engine.depth_step == 0 &&
                           (depth_end % engine.depth_step == 0 || depth_end == panels.depth);
  const bool past_caches =
      panels.past_caches && engine.pack_tiles &&
      gemm_panels_bytes(engine, panels.lanes, panels.depth) >= engine.panels_past_caches_bytes &&
      reinterpret_cast<uintptr_t>(panels.data) % 64 == 0;
  // Lanes [begin, end) of the part, and `depths` of it, counted from its first; whole steps but for
  // the last ones.
  const auto pack_lanes = [&](int64_t begin, int64_t end, const Depths& depths) {
    const int64_t skipped = begin - range.lane_begin;
    const int64_t depth = range.depth_begin + depths.begin;
    const bool whole_lanes = begin % columns == 0 && (end % columns == 0 || end == panels.lanes);
    if (whole_lanes && whole_depth) {
      std::byte* dst = static_cast<std::byte*>(panels.data) + begin / columns * panel_bytes +
                       gemm_panel_bytes(engine, depth);
      gemm_pack_right(engine, part, {skipped, end - begin, depths.begin, depths.count}, panel_bytes,
                      dst, past_caches);
      return;
    }
    GemmOperand piece = part;
    const int64_t row = part.depth_across ? depths.begin : skipped;
    const int64_t column = part.depth_across ? skipped : depths.begin;
    piece.data = static_cast<const std::byte*>(part.data) +
                 dtype_bytes(part.dtype, row * part.row_stride + column);
    pack_shared_piece(engine, panels, piece, {begin, end - begin, depth, depths.count});
  };
  const int64_t panel_begin = range.lane_begin / columns;
  const int64_t panel_end = gemm_divide_up(lane_end, columns);
  const int64_t groups = gemm_divide_up(panel_end - panel_begin, kPackPanels);
  const int64_t parts =
      std::clamp<int64_t>(gemm_divide_up(kPackPiecesPerThread * device.team().size(), groups), 1,
                          std::max<int64_t>(range.depth_count / kPackDepthMin, 1));
  const int64_t part_depth =
      gemm_round_up(gemm_divide_up(range.depth_count, parts), engine.depth_step);
  device.team().parallel_for(groups * parts, 1, [&](int64_t piece, int64_t piece_end, int) {
    for (; piece < piece_end; ++piece) {
      const int64_t panel = panel_begin + piece / parts * kPackPanels;
      const int64_t depth = piece % parts * part_depth;
      const Depths depths = {depth, std::min(part_depth, range.depth_count - depth)};
      if (depths.count <= 0) continue;
      int64_t lane = std::max(panel * columns, range.lane_begin);
      const int64_t stop = std::min(std::min(panel + kPackPanels, panel_end) * columns, lane_end);
      // Panels that are not the part's alone go by themselves.
      const int64_t first = std::min(gemm_round_up(lane, columns), stop);
      const int64_t last = stop == panels.lanes ? stop : stop / columns * columns;
      for (const int64_t next : {first, last, stop}) {
        if (next > lane) pack_lanes(lane, next, depths);
        lane = std::max(lane, next);
      }
    }
    if (past_caches) _mm_sfence();
  });
}

}  // namespace jige::cpu
