#include "kernels/cpu/gemm_many_rows.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/gemm_sums.h"

namespace jige::cpu {
namespace {

// Products of fewer rows read panels faster than they compute with them (gemm.cc).
constexpr int64_t kRowsMin = 49;
constexpr int64_t kColumnsOfTaskMin = 256;
constexpr int64_t kColumnTasksMax = 64;
// Tasks for each thread that even out threads of unequal speed, and the panels that a task should
// have for that.
constexpr int64_t kTasksToEvenOut = 16;
constexpr int64_t kTaskPanelsMin = 6;
constexpr int64_t kLineBytes = 64;

// What a task costs for each summed index beside its products, in cycles: memory rates that only
// their ratio to products matters of. Lanes that lie along memory rows are packed faster than those
// across them.
constexpr double kCyclesPerPackedLane = 0.2;
constexpr double kCyclesPerPackedLaneAcross = 0.4;
constexpr double kCyclesPerPanelLane = 0.06;

// Whether the left is read where it lies. Chains of bf16 read it as f32, so they never do.
bool reads_left_in_place(const GemmEngine& engine, const GemmProduct& product) {
  if (engine.layout == GemmLayout::kChainBF16) return false;
  const DType native = engine.layout == GemmLayout::kChainF32 ? DType::kF32 : DType::kBF16;
  const int64_t row_bytes = dtype_bytes(native, product.left.row_stride);
  const bool lines_whole = row_bytes % kLineBytes == 0 &&
                           reinterpret_cast<uintptr_t>(product.left.data) % kLineBytes == 0;
  return product.left.dtype == native && !product.left.depth_across &&
         product.depth % engine.depth_step == 0 &&
         (engine.left_in_place_bytes < 0 ||
          (row_bytes * product.columns <= engine.left_in_place_bytes && lines_whole));
}

// How a product is cut into tasks.
struct ManyRowsBlocking {
  int64_t task_rows;     // a multiple of the engine's rows
  int64_t task_panels;   // a multiple of the engine's panel group
  int64_t depth_packed;  // of the left at a time
  int64_t depth_block;   // of a micro-kernel call
  int64_t row_tasks;
  int64_t column_tasks;
};

// Cycles for each summed index of all tasks, when threads take them in turns.
double cost_of(const ManyRowsBlocking& cut, const GemmEngine& engine, bool lanes_across,
               int threads) {
  const auto rows = static_cast<double>(cut.task_rows);
  const auto columns = static_cast<double>(cut.task_panels * engine.columns);
  const int64_t rounds = gemm_divide_up(cut.row_tasks * cut.column_tasks, threads);
  return static_cast<double>(rounds) *
         (rows * columns / engine.products_per_cycle +
          rows * (lanes_across ? kCyclesPerPackedLaneAcross : kCyclesPerPackedLane) +
          columns * kCyclesPerPanelLane);
}

// Cuts the columns further, so that whoever is done first has something to take over. Every thread
// that works on the rows of such tasks packs them once, so not where that takes long.
void cut_columns(int64_t panels, const GemmEngine& engine, int threads, ManyRowsBlocking* cut) {
  const int64_t wanted =
      gemm_divide_up(kTasksToEvenOut * threads, cut->row_tasks * cut->column_tasks);
  const int64_t parts = std::clamp<int64_t>(cut->task_panels / kTaskPanelsMin, 1, wanted);
  cut->task_panels = gemm_round_up(gemm_divide_up(cut->task_panels, parts), engine.panel_group);
  cut->column_tasks = gemm_divide_up(panels, cut->task_panels);
}

// Panels of the right that calls of the micro-kernel get: of runs of columns, each has calls of its
// own, the last of which may be short.
int64_t count_panels(const GemmEngine& engine, const GemmProduct& product) {
  const GemmParts& parts = product.parts;
  const auto runs = parts.outputs.empty() ? parts.columns : parts.outputs;
  if (runs.empty()) return gemm_divide_up(product.columns, engine.columns);
  int64_t panels = 0;
  for (const GemmRun& run : runs) {
    panels += gemm_round_up(run.count / engine.columns, engine.panel_group);
  }
  return panels;
}

ManyRowsBlocking choose_many_rows_blocking(const GemmEngine& engine, const GemmProduct& product,
                                           int threads) {
  const int64_t panels = count_panels(engine, product);
  const int64_t column_tasks_max =
      std::clamp<int64_t>(product.columns / kColumnsOfTaskMin, 1, kColumnTasksMax);
  // The cuts of the columns, each once: choosing stands before every product.
  std::array<ManyRowsBlocking, kColumnTasksMax> cuts{};
  size_t cut_count = 0;
  for (int64_t column_tasks = 1; column_tasks <= column_tasks_max; ++column_tasks) {
    const int64_t task_panels =
        gemm_round_up(gemm_divide_up(panels, column_tasks), engine.panel_group);
    if (cut_count > 0 && cuts[cut_count - 1].task_panels == task_panels) continue;
    cuts[cut_count].task_panels = task_panels;
    cuts[cut_count++].column_tasks = gemm_divide_up(panels, task_panels);
  }
  ManyRowsBlocking best{};
  double best_cost = 0;
  for (int64_t rows = engine.panel_rows; rows >= 2 * engine.rows; rows -= engine.rows) {
    const int64_t row_tasks = gemm_divide_up(product.rows, rows);
    for (ManyRowsBlocking cut : std::span(cuts).first(cut_count)) {
      cut.task_rows = rows;
      cut.row_tasks = row_tasks;
      const double cost = cost_of(cut, engine, product.left.depth_across, threads);
      if (best.task_rows == 0 || cost < best_cost) {
        best = cut;
        best_cost = cost;
      }
    }
  }
  const auto share = [&](int64_t depth, int64_t max) {
    return gemm_round_up(gemm_divide_up(depth, gemm_divide_up(depth, max)), engine.depth_step);
  };
  const int64_t step_bytes = gemm_left_block_bytes(engine, engine.depth_step, best.task_rows);
  const int64_t packed_max =
      std::max(engine.left_bytes / step_bytes * engine.depth_step, engine.panel_depth);
  best.depth_packed = share(product.depth, packed_max);
  best.depth_block = share(best.depth_packed, engine.panel_depth);
  if (threads > 1 && !product.left.depth_across && best.depth_packed >= product.depth) {
    cut_columns(panels, engine, threads, &best);
  }
  return best;
}

// Sums of one micro-kernel call.
int64_t block_floats_of(const GemmEngine& engine) {
  return engine.rows * engine.panel_group * engine.columns;
}

// Whether sums live no longer than the work on one group of panels.
bool sums_stay(const GemmProduct& product, const ManyRowsBlocking& blocking) {
  return blocking.depth_packed >= product.depth;
}

// What a thread works in: a block of the left, packed, and behind it sums.
struct ManyRowsScratch {
  int64_t left_bytes;
  int64_t sums_bytes;

  int64_t bytes() const { return left_bytes + sums_bytes; }
};

ManyRowsScratch scratch_of(const GemmEngine& engine, const GemmProduct& product,
                           const ManyRowsBlocking& blocking) {
  // Tiles pack the rows behind the last whole call.
  const bool packs =
      engine.layout == GemmLayout::kTileBF16 || !reads_left_in_place(engine, product);
  const int64_t row_blocks = blocking.task_rows / engine.rows;
  const int64_t groups =
      sums_stay(product, blocking) ? 1 : blocking.task_panels / engine.panel_group;
  return {packs ? gemm_round_up(
                      gemm_left_block_bytes(engine, blocking.depth_packed, blocking.task_rows),
                      kLineBytes)
                : 0,
          row_blocks * groups * block_floats_of(engine) * 4};
}

class ManyRowsProduct {
 public:
  ManyRowsProduct(const GemmEngine& engine, const GemmProduct& product,
                  const ManyRowsBlocking& blocking)
      : engine_(engine),
        product_(product),
        blocking_(blocking),
        scratch_(scratch_of(engine, product, blocking)) {
    block_floats_ = block_floats_of(engine);
    const int64_t right_depth = product.parts.right_depth;
    panel_bytes_ = gemm_panel_bytes(engine, right_depth > 0 ? right_depth : product.depth);
    list_groups();
    list_stretches();
    out_bytes_ = dtype_bytes(product.out_dtype, 1);
    out_row_bytes_ = out_bytes_ * product.out_stride;
    out_lines_ = out_bytes_ * engine.panel_group * engine.columns / kLineBytes;
    left_in_place_ = reads_left_in_place(engine, product);
    past_caches_ = product.out_past_caches && engine.store_bf16 && !product.accumulate &&
                   product.rows * out_row_bytes_ >= engine.past_caches_bytes &&
                   reinterpret_cast<uintptr_t>(product.out) % kLineBytes == 0 &&
                   out_row_bytes_ % kLineBytes == 0;
  }

  int64_t scratch_bytes() const { return scratch_.bytes(); }

  // Tasks of the same rows follow each other. `packed_task` is the task whose rows are in the
  // scratch, or negative; afterwards it is this one.
  void run_task(int64_t task, void* scratch, int64_t* packed_task) const {
    std::byte* left = static_cast<std::byte*>(scratch);
    float* sums = reinterpret_cast<float*>(left + scratch_.left_bytes);
    GemmPackRange rows = rows_of(task);
    const bool packed =
        sums_stay() && *packed_task >= 0 && row_task(*packed_task) == row_task(task);
    *packed_task = task;
    const int64_t task_groups = blocking_.task_panels / engine_.panel_group;
    const int64_t begin = task % blocking_.column_tasks * task_groups;
    const int64_t end = std::min(begin + task_groups, std::ssize(groups_));
    size_t stretch = 0;
    for (int64_t depth = 0; depth < product_.depth; depth += blocking_.depth_packed) {
      rows.depth_begin = depth;
      rows.depth_count = std::min(blocking_.depth_packed, product_.depth - depth);
      size_t stretch_end = stretch;
      while (stretch_end < stretches_.size() &&
             stretches_[stretch_end].depth < depth + rows.depth_count) {
        ++stretch_end;
      }
      const LeftBlock block = left_block(rows, left, packed);
      for (int64_t g = begin; g < end; ++g) {
        float* group =
            sums_stay() ? sums
                        : sums + (g - begin) * (blocking_.task_rows / engine_.rows) * block_floats_;
        run_panels(rows, static_cast<size_t>(g), {stretch, stretch_end}, block, group);
      }
      stretch = stretch_end;
    }
  }

 private:
  // Panels of one call of the micro-kernel.
  struct PanelGroup {
    int64_t panel;    // the first, in the right
    int64_t count;    // of panels
    int64_t column;   // the first, in the output
    int64_t columns;  // that are results
  };

  // A stretch of the depth that one call of the micro-kernel runs through.
  struct DepthPart {
    int64_t depth;  // of its beginning in the left
    int64_t right;  // and in the right
    int64_t count;
  };
  struct PartRange {
    size_t begin;
    size_t end;
  };

  void list_groups() {
    const GemmRun all = {0, product_.columns};
    const auto list = [&](const GemmRun& columns, int64_t panel, int64_t out) {
      const int64_t panels = gemm_divide_up(columns.count, engine_.columns);
      for (int64_t p = 0; p < panels; p += engine_.panel_group) {
        const int64_t count = std::min<int64_t>(engine_.panel_group, panels - p);
        groups_.push_back({panel + p, count, out + p * engine_.columns,
                           std::min(count * engine_.columns, columns.count - p * engine_.columns)});
      }
    };
    const bool spreads = !product_.parts.outputs.empty();
    const auto runs = spreads                          ? product_.parts.outputs
                      : product_.parts.columns.empty() ? std::span(&all, 1)
                                                       : product_.parts.columns;
    int64_t passed = 0;  // columns of the runs before
    for (const GemmRun& run : runs) {
      list(run, (spreads ? passed : run.begin) / engine_.columns, spreads ? run.begin : passed);
      passed += run.count;
    }
  }

  // Cut where a run ends, where another part of the left is packed, and where a call is long
  // enough.
  void list_stretches() {
    const GemmRun all = {0, product_.depth};
    const auto& depths = product_.parts.depths;
    int64_t depth = 0;
    for (const GemmRun& run : depths.empty() ? std::span(&all, 1) : depths) {
      const int64_t end = depth + run.count;
      for (int64_t right = run.begin; depth < end;) {
        const int64_t packed_end = (depth / blocking_.depth_packed + 1) * blocking_.depth_packed;
        const int64_t count = std::min(blocking_.depth_block, std::min(packed_end, end) - depth);
        stretches_.push_back({depth, right, count});
        depth += count;
        right += count;
      }
    }
  }

  // Rows of the left for one stretch of the depth: those of whole micro-kernel calls where they lie
  // in memory, the others packed; or all of them packed.
  struct LeftBlock {
    int64_t rows_in_place;
    const std::byte* in_place;  // of the first row
    const std::byte* packed;    // of the first row that is packed
    int64_t depth_count;
  };

  LeftBlock left_block(const GemmPackRange& rows, std::byte* scratch, bool packed) const {
    const GemmOperand& left = product_.left;
    LeftBlock block = {
        .rows_in_place = !left_in_place_ ? 0
                         : is_tiles()    ? rows.lane_count / engine_.rows * engine_.rows
                                         : rows.lane_count,
        .in_place = static_cast<const std::byte*>(left.data) +
                    dtype_bytes(left.dtype, rows.lane_begin * left.row_stride + rows.depth_begin),
        .packed = scratch,
        .depth_count = rows.depth_count};
    GemmPackRange rest = rows;
    rest.lane_begin += block.rows_in_place;
    rest.lane_count -= block.rows_in_place;
    if (rest.lane_count > 0 && !packed) {
      gemm_pack_left(engine_, left, rest, engine_.rows, scratch);
    }
    return block;
  }

  bool is_tiles() const { return engine_.layout == GemmLayout::kTileBF16; }

  int64_t row_task(int64_t task) const { return task / blocking_.column_tasks; }

  GemmPackRange rows_of(int64_t task) const {
    const int64_t begin = row_task(task) * blocking_.task_rows;
    return {begin, std::min(blocking_.task_rows, product_.rows - begin), 0, 0};
  }

  bool sums_stay() const { return cpu::sums_stay(product_, blocking_); }

  // One stretch of the depth of one group of panels, which all row blocks of a task run through:
  // what their calls share is found once.
  struct Stretch {
    int64_t depth;       // of its beginning in the packed left
    bool first;          // its chains start here
    bool last;           // its sums are results
    int64_t next_bytes;  // of each of the panels that follow
    float* sums;         // of the first row block
    int64_t sums_step;   // from row block to row block
  };

  // All packed rows times one group of panels, through some stretches of the depth.
  void run_panels(const GemmPackRange& rows, size_t group_index, const PartRange& parts,
                  const LeftBlock& left, float* sums) const {
    const PanelGroup& group = groups_[group_index];
    const bool one_stretch = parts.end - parts.begin <= 1 && sums_stay();
    const auto right_at = [&](const PanelGroup& of, const DepthPart& part) {
      return static_cast<const std::byte*>(product_.right_panels) + of.panel * panel_bytes_ +
             gemm_panel_bytes(engine_, part.right);
    };
    GemmMicroArgs args;
    args.right_stride = panel_bytes_;
    args.panels = group.count;
    for (size_t i = parts.begin; i < parts.end; ++i) {
      const DepthPart& part = stretches_[i];
      args.depth = gemm_padded_depth(engine_, part.count);
      args.right = right_at(group, part);
      // What follows: the next stretch, or the next panels' first, here or in the next task.
      const bool next_panels = i + 1 == parts.end;
      const DepthPart& next = stretches_[next_panels ? parts.begin : i + 1];
      args.next = !next_panels                       ? right_at(group, next)
                  : group_index + 1 < groups_.size() ? right_at(groups_[group_index + 1], next)
                                                     : nullptr;
      const Stretch stretch = {.depth = part.depth - rows.depth_begin,
                               .first = i == 0,
                               .last = i + 1 == stretches_.size(),
                               .next_bytes = gemm_panel_bytes(engine_, next.count),
                               .sums = sums,
                               .sums_step = one_stretch ? 0 : block_floats_};
      run_rows(rows, group, left, stretch, args);
    }
  }

  // The row blocks of one stretch: those in place, then those packed.
  void run_rows(const GemmPackRange& rows, const PanelGroup& group, const LeftBlock& left,
                const Stretch& stretch, GemmMicroArgs& args) const {
    const int64_t column = group.column;
    GemmSumsBlock out = {.sums = stretch.sums,
                         .sums_stride = engine_.panel_group * engine_.columns,
                         .out = static_cast<std::byte*>(product_.out) +
                                rows.lane_begin * out_row_bytes_ + column * out_bytes_,
                         .out_dtype = product_.out_dtype,
                         .out_stride = product_.out_stride,
                         .rows = 0,
                         .columns = group.columns,
                         .past_caches = past_caches_};
    const bool fits =
        out.out_dtype == DType::kF32 && group.columns == group.count * engine_.columns;
    const int64_t blocks = gemm_divide_up(rows.lane_count, engine_.rows);
    const int64_t share = gemm_round_up(gemm_divide_up(stretch.next_bytes, blocks), kLineBytes);
    args.next_begin = 0;
    const auto run = [&](int64_t lanes) {
      args.rows = static_cast<int>(std::min<int64_t>(engine_.rows, lanes));
      args.next_end = std::min(args.next_begin + share, stretch.next_bytes);
      out.rows = args.rows;
      run_block(args, out, stretch, column, fits && (!is_tiles() || args.rows % kTileLanes == 0));
      args.next_begin = args.next_end;
      out.sums += stretch.sums_step;
      out.out = static_cast<std::byte*>(out.out) + engine_.rows * out_row_bytes_;
    };
    args.left_in_rows = true;
    const int64_t element_bytes = dtype_bytes(product_.left.dtype, 1);
    args.left_row_bytes = product_.left.row_stride * element_bytes;
    args.left_tile_bytes = kTileDepth * 2;
    args.left_stride = kTileLanes * args.left_row_bytes;
    int64_t row = 0;
    for (; row < left.rows_in_place; row += engine_.rows) {
      args.left = left.in_place + row * args.left_row_bytes + stretch.depth * element_bytes;
      run(std::min<int64_t>(engine_.rows, rows.lane_count - row));
    }
    args.left_in_rows = false;
    args.left_row_bytes = kTileDepth * 2;
    args.left_tile_bytes = kTileElements * 2;
    args.left_stride = gemm_left_block_bytes(engine_, left.depth_count, kTileLanes);
    const int64_t lane_bytes = gemm_left_block_bytes(engine_, left.depth_count, 1);
    const int64_t skipped_bytes = gemm_left_block_bytes(engine_, stretch.depth, 1);
    for (; row < rows.lane_count; row += engine_.rows) {
      const int64_t lanes = std::min<int64_t>(engine_.rows, rows.lane_count - row);
      args.left = left.packed + (row - left.rows_in_place) * lane_bytes +
                  (is_tiles() ? kTileLanes : lanes) * skipped_bytes;
      run(lanes);
    }
  }

  // One call of the micro-kernel, from where its sums are to where they go. `fits`: it may write
  // all its lanes to the output.
  void run_block(GemmMicroArgs& args, const GemmSumsBlock& out, const Stretch& stretch,
                 int64_t column, bool fits) const {
    const bool loads = stretch.first && product_.accumulate;
    args.from = stretch.first ? nullptr : out.sums;
    args.from_stride = out.sums_stride;
    if (loads && fits) {
      args.from = static_cast<const float*>(out.out);
      args.from_stride = out.out_stride;
    } else if (loads) {
      gemm_load_sums(out, out.sums_stride);
      args.from = out.sums;
    }
    const bool in_place = stretch.last && fits && !product_.bias && !past_caches_;
    args.sums = in_place ? static_cast<float*>(out.out) : out.sums;
    args.sums_stride = in_place ? out.out_stride : out.sums_stride;
    // Of the output, what the next call starts from, or what this one ends in.
    args.fetch = {};
    if (loads || (stretch.last && !past_caches_)) {
      args.fetch = {
          .at = static_cast<const char*>(out.out) + (loads ? engine_.rows * out_row_bytes_ : 0),
          .stride = out_row_bytes_,
          .rows = out.rows,
          .lines = out_lines_};
    }
    engine_.micro(args);
    if (stretch.last && !in_place) {
      gemm_store_sums(engine_, out, product_.bias ? product_.bias + column : nullptr);
    }
  }

  const GemmEngine& engine_;
  const GemmProduct& product_;
  const ManyRowsBlocking blocking_;
  const ManyRowsScratch scratch_;
  std::vector<PanelGroup> groups_;    // in the order of columns
  std::vector<DepthPart> stretches_;  // in that of depths
  int64_t block_floats_;              // sums of one micro-kernel call
  int64_t panel_bytes_;               // of the right, with its whole depth
  int64_t out_bytes_;                 // of an element of the output
  int64_t out_row_bytes_;             // from row to row of it
  int64_t out_lines_;                 // cache lines of a group of panels in a row of it
  bool left_in_place_;
  bool past_caches_;
};

}  // namespace

bool gemm_many_rows_suit(const GemmEngine& engine, const GemmProduct& product) {
  if (product.parts.any()) return true;
  return (product.right_panels || (gemm_flushes(engine) && product.right_scratch)) &&
         product.rows >= kRowsMin && product.depth > 0;
}

int64_t gemm_many_rows_scratch_bytes(const GemmEngine& engine, const GemmProduct& product,
                                     int threads) {
  const ManyRowsBlocking blocking = choose_many_rows_blocking(engine, product, threads);
  return scratch_of(engine, product, blocking).bytes();
}

void gemm_many_rows(CpuDevice& device, const GemmEngine& engine, const GemmProduct& given) {
  GemmProduct product = given;
  JIGE_CHECK(product.right_panels || product.right_scratch, "parts of a right that is not packed");
  if (!product.right_panels) {
    gemm_pack_panels(device, engine, {product.right_scratch, product.columns, product.depth},
                     product.right, {0, product.columns, 0, product.depth});
    product.right_panels = product.right_scratch;
  }
  const ManyRowsBlocking blocking =
      choose_many_rows_blocking(engine, product, device.team().size());
  const ManyRowsProduct run(engine, product, blocking);
  std::vector<int64_t> packed_tasks(static_cast<size_t>(device.team().size()), -1);
  device.team().parallel_for(
      blocking.row_tasks * blocking.column_tasks, 1, [&](int64_t begin, int64_t end, int worker) {
        void* scratch = device.scratch(worker, run.scratch_bytes());
        if (engine.begin) engine.begin();
        for (int64_t task = begin; task < end; ++task) {
          run.run_task(task, scratch, &packed_tasks[static_cast<size_t>(worker)]);
        }
        if (engine.end) engine.end();
      });
}

}  // namespace jige::cpu
