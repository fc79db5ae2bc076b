#include "ops/linear.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/gemm_sums.h"
#include "kernels/cpu/quant_choice.h"
#include "kernels/cpu/quant_gemm.h"
#include "kernels/cpu/quant_levels.h"
#include "kernels/cpu/quant_strips.h"
#include "kernels/cuda/quant.h"
#include "ops/elementwise.h"
#include "ops/kernel_rows.h"
#include "ops/linear_cuda.h"
#include "ops/linear_products.h"
#include "ops/pack_rows.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

using cpu::GemmEngine;
using cpu::GemmOperand;

// Whether an engine may pack weights of this compute type.
bool packs(const GemmEngine& engine, DType compute) {
  return (engine.layout == cpu::GemmLayout::kChainF32) == (compute == DType::kF32);
}

// What packed data starts with: which engine it was packed for. The panels follow. Those of
// quantised weights are the same for every engine.
struct PackedHeader {
  uint64_t magic;
  uint64_t engine;  // position in gemm_engines()
};
struct QuantHeader {
  uint64_t magic;
  WeightFormat format;
  int32_t blocks;        // a cpu::QuantFormat; with kQ4 as the first rows had it
  int64_t rows_missing;  // of all; none: the next ones that are packed are the first again
};
// The same numbers in the same order are the same bytes.
static_assert(std::has_unique_object_representations_v<QuantHeader>);
constexpr uint64_t kPackedMagic = 0x6769656b63617031;
constexpr uint64_t kQuantMagic = 0x6769656b63617071;
constexpr int64_t kHeaderBytes = 64;
static_assert(sizeof(PackedHeader) <= kHeaderBytes && sizeof(QuantHeader) <= kHeaderBytes);

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// Lanes and depth of the right operand that a weight is.
int64_t packed_lanes(PackUse use, int64_t n, int64_t k) { return use == PackUse::kForward ? n : k; }
int64_t packed_depth(PackUse use, int64_t n, int64_t k) { return use == PackUse::kForward ? k : n; }

void* panels_of(const PackedWeight& packed) {
  return static_cast<std::byte*>(packed.data) + kHeaderBytes;
}

void write_header(const PackedWeight& packed, const GemmEngine& engine) {
  const auto& engines = cpu::gemm_engines();
  const auto at = std::find(engines.begin(), engines.end(), &engine);
  const PackedHeader header = {kPackedMagic, static_cast<uint64_t>(at - engines.begin())};
  std::memcpy(packed.data, &header, sizeof header);
}

// The engine a weight was packed for, whatever the instruction set in use is by now.
const GemmEngine& engine_of(const PackedWeight& packed) {
  PackedHeader header;
  std::memcpy(&header, packed.data, sizeof header);
  JIGE_CHECK(header.magic == kPackedMagic && header.engine < cpu::gemm_engines().size(),
             "the weight [{}, {}] was not packed", packed.n, packed.k);
  return *cpu::gemm_engines()[header.engine];
}

// Its blocks; with kQ4 those of even levels, which take the memory of others.
cpu::QuantFormat quant_format(WeightFormat format) {
  if (format == WeightFormat::kMxfp4) return cpu::QuantFormat::kFp4;
  return format == WeightFormat::kQ8 ? cpu::QuantFormat::kQ8 : cpu::QuantFormat::kQ4;
}

static_assert(kWeightBlock == cpu::kQuantBlock);
static_assert(cpu::QuantTraits<cpu::QuantFormat::kQ4>::kBlockBytes ==
              cpu::QuantTraits<cpu::QuantFormat::kUneven4>::kBlockBytes);

// Marks rows of a quantised weight as packed, and gives the blocks that they are packed in. Where
// there is a choice the very first row makes it, however many come with it.
cpu::QuantFormat count_rows(const PackedWeight& packed, const TensorView& rows,
                            const cpu::QuantScales& scales) {
  QuantHeader header;
  std::memcpy(&header, packed.data, sizeof header);
  const bool goes_on = header.magic == kQuantMagic && header.format == packed.format &&
                       header.rows_missing >= rows.rows();
  if (!goes_on) {
    const bool chooses = packed.format == WeightFormat::kQ4 && rows.rows() > 0;
    const cpu::QuantFormat blocks = chooses
                                        ? cpu::quant_levels(const_rows_of(rows), packed.k, scales)
                                        : quant_format(packed.format);
    header = {kQuantMagic, packed.format, static_cast<int32_t>(blocks), packed.n};
  }
  header.rows_missing -= rows.rows();
  std::memcpy(packed.data, &header, sizeof header);
  return static_cast<cpu::QuantFormat>(header.blocks);
}

void quantise_rows(CpuDevice& device, const PackedWeight& packed, const TensorView& rows,
                   int64_t row_begin, const TensorView& scales) {
  const cpu::QuantScales given = {static_cast<const uint16_t*>(scales.data), scales.row_stride};
  cpu::quant_pack(device, {.format = count_rows(packed, rows, given),
                           .panels = static_cast<std::byte*>(panels_of(packed)),
                           .columns = packed.n,
                           .depth = packed.k,
                           .part = const_rows_of(rows),
                           .part_begin = row_begin,
                           .part_count = rows.rows(),
                           .scales = given});
}

// The blocks of a weight that was packed.
cpu::QuantFormat packed_blocks(const PackedWeight& weight) {
  QuantHeader header;
  std::memcpy(&header, weight.data, sizeof header);
  JIGE_CHECK(header.magic == kQuantMagic && header.format == weight.format,
             "the weight [{}, {}] was not packed in this format", weight.n, weight.k);
  return static_cast<cpu::QuantFormat>(header.blocks);
}

// Columns of a product, whose first begins a panel.
struct ColumnRange {
  int64_t begin;
  int64_t end;
};

// Where the column of a view's first row lies.
std::byte* column_data(const TensorView& view, int64_t column) {
  return static_cast<std::byte*>(view.data) + dtype_bytes(view.dtype, column);
}

// dst = src times columns of the quantised weight in whole numbers, on the calling thread and the
// team.
void multiply_quantised(CpuDevice& device, const PackedProduct& args, ColumnRange columns) {
  const PackedWeight& weight = args.weight;
  const cpu::QuantFormat format = packed_blocks(weight);
  const int64_t panel_bytes = cpu::quant_panel_bytes(format, weight.k);
  cpu::quant_gemm(device, cpu::quant_engine(),
                  {.rows = args.src.rows(),
                   .columns = columns.end - columns.begin,
                   .depth = weight.k,
                   .left = const_rows_of(args.src),
                   .format = format,
                   .panels = static_cast<const std::byte*>(panels_of(weight)) +
                             columns.begin / cpu::kQuantColumns * panel_bytes,
                   .out = {column_data(args.dst, columns.begin), element_type(args.dst.dtype),
                           args.dst.row_stride},
                   .bias = static_cast<const float*>(args.bias.data)});
}

GemmOperand operand_of(const TensorView& view, bool depth_across, bool round_to_bf16) {
  return {.data = view.data,
          .dtype = view.dtype,
          .row_stride = view.row_stride,
          .depth_across = depth_across,
          .round_to_bf16 = round_to_bf16};
}

// dst = src times all of a packed weight.
cpu::GemmProduct packed_product(const PackedProduct& args) {
  const PackedWeight& weight = args.weight;
  return {.rows = args.src.rows(),
          .columns = packed_lanes(weight.use, weight.n, weight.k),
          .depth = packed_depth(weight.use, weight.n, weight.k),
          .left = operand_of(args.src, false, weight.compute == DType::kBF16),
          .right_panels = panels_of(weight),
          .out = args.dst.data,
          .out_dtype = args.dst.dtype,
          .out_stride = args.dst.row_stride,
          .bias = static_cast<const float*>(args.bias.data),
          .out_past_caches = args.past_caches};
}

// dst = src times columns of the packed weight, on the calling thread and the team.
void multiply_packed(CpuDevice& device, const PackedProduct& args, ColumnRange columns) {
  const GemmEngine& engine = engine_of(args.weight);
  cpu::GemmProduct product = packed_product(args);
  product.columns = columns.end - columns.begin;
  product.right_panels =
      static_cast<const std::byte*>(product.right_panels) +
      columns.begin / engine.columns * cpu::gemm_panel_bytes(engine, product.depth);
  product.out = column_data(args.dst, columns.begin);
  cpu::gemm(device, engine, product);
}

// The same with the numbers of a quantised weight, for either use.
void multiply_numbers(CpuDevice& device, const PackedProduct& args) {
  const PackedWeight& weight = args.weight;
  JIGE_CHECK(args.strip.count() >= linear_strip_bytes(weight.compute, weight.n, weight.k),
             "a strip of {} bytes for a weight [{}, {}]", args.strip.count(), weight.n, weight.k);
  const bool forward = args.use == PackUse::kForward;
  cpu::strip_gemm(device, cpu::gemm_engine(weight.compute),
                  {.use = forward ? cpu::StripUse::kForward : cpu::StripUse::kInputGradient,
                   .rows = args.src.rows(),
                   .n = weight.n,
                   .k = weight.k,
                   .left = operand_of(args.src, false, weight.compute == DType::kBF16),
                   .format = packed_blocks(weight),
                   .blocks = static_cast<const std::byte*>(panels_of(weight)),
                   .out = args.dst.data,
                   .out_dtype = args.dst.dtype,
                   .out_stride = args.dst.row_stride,
                   .bias = static_cast<const float*>(args.bias.data),
                   .out_past_caches = args.past_caches,
                   .strip = args.strip.data});
}

void check_matrix(const TensorView& view, int64_t columns, const char* name) {
  JIGE_CHECK(is_float(view.dtype) && view.columns() == columns, "{} is {} {}, not of {} columns",
             name, dtype_info(view.dtype).name, view.shape.to_string(), columns);
}

}  // namespace

int64_t packed_weight_bytes(DType compute, PackUse use, int64_t n, int64_t k, WeightFormat format,
                            DeviceKind device) {
  if (format != WeightFormat::kCompute) {
    JIGE_CHECK(use == PackUse::kForward, "a quantised weight is packed for both uses as kForward");
    if (device == DeviceKind::kCuda) {
      return cuda::quant_weight_bytes(n, k, format != WeightFormat::kQ8);
    }
    return kHeaderBytes + cpu::quant_panels_bytes(quant_format(format), n, k);
  }
  if (device == DeviceKind::kCuda) return kHeaderBytes + dtype_bytes(compute, n * k);
  int64_t bytes = 0;
  for (const GemmEngine* engine : cpu::gemm_engines()) {
    if (!packs(*engine, compute)) continue;
    bytes = std::max(
        bytes, cpu::gemm_panels_bytes(*engine, packed_lanes(use, n, k), packed_depth(use, n, k)));
  }
  return kHeaderBytes + bytes;
}

const GemmEngine& start_packing(const PackedWeight& packed) {
  JIGE_CHECK(packed.format == WeightFormat::kCompute, "a quantised weight is not renewed by rows");
  const GemmEngine& engine = cpu::gemm_engine(packed.compute);
  if (packed.device == DeviceKind::kCpu) write_header(packed, engine);
  return engine;
}

void pack_rows(CpuDevice& device, const GemmEngine& engine, const PackPart& part,
               const TensorView& rows) {
  const PackedWeight& packed = part.packed;
  if (packed.device == DeviceKind::kCuda) {
    for_row_ranges(device, rows.rows(), rows.columns(), [&](int64_t begin, int64_t end) {
      pack_rows_for_gpu({packed, part.row_begin + begin}, rows.row_range(begin, end));
    });
    return;
  }
  const bool forward = packed.use == PackUse::kForward;
  const cpu::GemmPanels panels = {panels_of(packed), packed_lanes(packed.use, packed.n, packed.k),
                                  packed_depth(packed.use, packed.n, packed.k),
                                  /*past_caches=*/true};
  cpu::gemm_pack_panels(device, engine, panels,
                        operand_of(rows, !forward, packed.compute == DType::kBF16),
                        forward ? cpu::GemmPackRange{part.row_begin, rows.rows(), 0, packed.k}
                                : cpu::GemmPackRange{0, packed.k, part.row_begin, rows.rows()});
}

void pack_weight(Stream& stream, const PackedWeight& packed, const TensorView& weight,
                 int64_t row_begin, const TensorView& scales) {
  JIGE_CHECK(is_float(weight.dtype) || weight.dtype == DType::kF16, "weight in {}",
             dtype_info(weight.dtype).name);
  JIGE_CHECK(
      weight.columns() == packed.k && row_begin >= 0 && row_begin + weight.rows() <= packed.n,
      "weight {} at row {} of [{}, {}]", weight.shape.to_string(), row_begin, packed.n, packed.k);
  const int64_t blocks = (packed.k + kWeightBlock - 1) / kWeightBlock;
  JIGE_CHECK(
      !scales || (scales.dtype == DType::kF16 && scales.shape == Shape{weight.rows(), blocks}),
      "scales {} of weight {}", scales.shape.to_string(), weight.shape.to_string());
  if (on_cuda(stream)) return cuda_pack_weight(stream, packed, weight, row_begin, scales);
  CpuStream& cpu = as_cpu(stream);
  CpuDevice& device = cpu.cpu();
  cpu.submit([=, &device] {
    if (packed.format == WeightFormat::kCompute) {
      pack_rows(device, start_packing(packed), {packed, row_begin}, weight);
    } else {
      quantise_rows(device, packed, weight, row_begin, scales);
    }
  });
}

void multiply(CpuDevice& device, const PackedProduct& product) {
  if (product.weight.format != WeightFormat::kCompute && product.strip) {
    multiply_numbers(device, product);
  } else {
    const int64_t columns = packed_lanes(product.use, product.weight.n, product.weight.k);
    multiply_columns(device, product, 0, columns);
  }
}

int64_t product_column_step(const PackedWeight& weight) {
  return weight.format == WeightFormat::kCompute ? engine_of(weight).columns : cpu::kQuantColumns;
}

void multiply_parts(CpuDevice& device, const PackedProduct& args, const cpu::GemmParts& parts) {
  cpu::GemmProduct product = packed_product(args);
  product.parts = parts;
  product.parts.right_depth = product.depth;
  product.columns = args.dst.columns();
  product.depth = args.src.columns();
  cpu::gemm(device, engine_of(args.weight), product);
}

void multiply_columns(CpuDevice& device, const PackedProduct& product, int64_t begin, int64_t end) {
  if (product.weight.format == WeightFormat::kCompute) {
    multiply_packed(device, product, {begin, end});
  } else {
    multiply_quantised(device, product, {begin, end});
  }
}

void linear_forward(Stream& stream, const LinearForward& args) {
  JIGE_CHECK(args.weight.use == PackUse::kForward, "weight is packed for another use");
  check_matrix(args.src, args.weight.k, "src");
  check_matrix(args.dst, args.weight.n, "dst");
  JIGE_CHECK(args.src.rows() == args.dst.rows(), "{} rows in, {} out", args.src.rows(),
             args.dst.rows());
  JIGE_CHECK(!args.bias || (args.bias.dtype == DType::kF32 && args.bias.count() == args.weight.n),
             "bias is {} {}", dtype_info(args.bias.dtype).name, args.bias.shape.to_string());
  JIGE_CHECK(
      !args.addend || (args.dst.dtype == DType::kF32 && args.addend.dtype == DType::kF32 &&
                       args.addend.shape == args.dst.shape && args.addend.data != args.dst.data),
      "addend is {} {}", dtype_info(args.addend.dtype).name, args.addend.shape.to_string());
  JIGE_CHECK(!args.norm ||
                 (args.norm->dst.data == args.src.data && args.norm->src.shape == args.src.shape),
             "a norm of other rows");
  if (on_cuda(stream)) return cuda_linear_forward(stream, args);
  if (args.norm) rms_norm_forward(stream, *args.norm);
  CpuStream& cpu = as_cpu(stream);
  CpuDevice& device = cpu.cpu();
  cpu.submit([args, &device] {
    multiply(device, {.dst = args.dst,
                      .src = args.src,
                      .weight = args.weight,
                      .bias = args.bias,
                      .past_caches = args.past_caches,
                      .strip = args.strip});
  });
  if (args.addend) add(stream, args.dst, args.addend, args.dst);
}

bool linear_gated_forward(Stream& stream, const LinearGated& args) {
  const PackedWeight& weight = args.product.weight;
  check_matrix(args.product.src, weight.k, "src");
  JIGE_CHECK(2 * args.dst.columns() == weight.n && args.dst.rows() == args.product.src.rows(),
             "dst {} of a gated product with {} columns", args.dst.shape.to_string(), weight.n);
  return on_cuda(stream) && cuda_linear_gated_forward(stream, args);
}

void linear_backward_input(Stream& stream, const LinearBackwardInput& args) {
  const bool quantised = args.weight.format != WeightFormat::kCompute;
  JIGE_CHECK(quantised || args.weight.use == PackUse::kInputGradient,
             "weight is packed for another use");
  JIGE_CHECK(!quantised || args.strip, "no strip for the input gradient of a quantised weight");
  check_matrix(args.grad_dst, args.weight.n, "grad_dst");
  check_matrix(args.grad_src, args.weight.k, "grad_src");
  JIGE_CHECK(args.grad_src.rows() == args.grad_dst.rows(), "{} rows in, {} out",
             args.grad_dst.rows(), args.grad_src.rows());
  if (on_cuda(stream)) return cuda_linear_backward_input(stream, args);
  CpuStream& cpu = as_cpu(stream);
  CpuDevice& device = cpu.cpu();
  cpu.submit([args, &device] {
    multiply(device, {.dst = args.grad_src,
                      .src = args.grad_dst,
                      .weight = args.weight,
                      .use = PackUse::kInputGradient,
                      .past_caches = args.past_caches,
                      .strip = args.strip});
  });
}

int64_t linear_strip_bytes(DType compute, int64_t n, int64_t k, DeviceKind device) {
  if (device == DeviceKind::kCuda) return cuda_strip_bytes(compute, n, k);
  int64_t bytes = 0;
  for (const GemmEngine* engine : cpu::gemm_engines()) {
    if (packs(*engine, compute)) bytes = std::max(bytes, cpu::strip_bytes(*engine, n, k));
  }
  return bytes;
}

int64_t linear_thread_scratch_bytes(DType compute, int64_t token_count, int64_t n, int64_t k,
                                    int threads, WeightFormat format) {
  if (format != WeightFormat::kCompute) {
    return cpu::quant_thread_scratch_bytes(cpu::quant_engine(),
                                           {.rows = token_count,
                                            .columns = n,
                                            .depth = k,
                                            .left = {},
                                            .format = quant_format(format),
                                            .out = {}},
                                           threads);
  }
  int64_t bytes = 0;
  const auto add = [&](const GemmEngine& engine, const cpu::GemmProduct& product) {
    bytes = std::max(bytes, cpu::gemm_thread_scratch_bytes(engine, product, threads));
  };
  const GemmEngine& engine = cpu::gemm_engine(compute);
  const void* const packed = &engine;  // some address: nothing is read
  // As activations are; rows of another type would be packed, and take more.
  const cpu::GemmOperand rows = {.dtype = compute};
  add(engine,
      {.rows = token_count, .columns = n, .depth = k, .left = rows, .right_panels = packed});
  add(engine,
      {.rows = token_count, .columns = k, .depth = n, .left = rows, .right_panels = packed});
  for (const cpu::StripUse use : {cpu::StripUse::kForward, cpu::StripUse::kInputGradient}) {
    const cpu::StripProduct numbers = {.use = use, .rows = token_count, .n = n, .k = k};
    bytes = std::max(bytes, cpu::strip_thread_scratch_bytes(engine, numbers, threads));
  }
  return bytes;
}

int64_t linear_backward_weight_thread_scratch_bytes(DType compute, int64_t token_count, int64_t n,
                                                    int64_t k, int threads) {
  const GemmEngine& engine = cpu::gemm_engine_unpacked(compute);
  cpu::GemmProduct gradient = {.rows = n, .columns = k, .depth = token_count};
  gradient.left.depth_across = gradient.right.depth_across = true;
  if (cpu::gemm_flushes(engine)) gradient.right_panels = &engine;  // some address: nothing is read
  return cpu::gemm_thread_scratch_bytes(engine, gradient, threads);
}

int64_t linear_backward_weight_scratch_bytes(DType compute, int64_t token_count, int64_t k) {
  int64_t bytes = 0;
  for (const GemmEngine* engine : cpu::gemm_engines()) {
    if (compute == DType::kF32 || !cpu::gemm_flushes(*engine)) continue;
    bytes = std::max(bytes, cpu::gemm_panels_bytes(*engine, k, token_count));
  }
  return bytes;
}

void linear_backward_weight(Stream& stream, const LinearBackwardWeight& args) {
  JIGE_CHECK(args.grad_weight.dtype == DType::kF32, "grad_weight in {}",
             dtype_info(args.grad_weight.dtype).name);
  check_matrix(args.grad_dst, args.grad_weight.rows(), "grad_dst");
  check_matrix(args.src, args.grad_weight.columns(), "src");
  JIGE_CHECK(args.src.rows() == args.grad_dst.rows(), "{} and {} rows", args.src.rows(),
             args.grad_dst.rows());
  if (on_cuda(stream)) return cuda_linear_backward_weight(stream, args);
  CpuStream& cpu = as_cpu(stream);
  CpuDevice& device = cpu.cpu();
  cpu.submit([args, &device] { multiply_gradient(device, args); });
}

cpu::GemmProduct gradient_product(const GemmEngine& engine, const LinearBackwardWeight& args) {
  const bool round = args.compute == DType::kBF16;
  cpu::GemmProduct product;
  product.rows = args.grad_weight.rows();
  product.columns = args.grad_weight.columns();
  product.depth = args.src.rows();
  product.left = operand_of(args.grad_dst, true, round);
  product.right = operand_of(args.src, true, round);
  product.out = args.grad_weight.data;
  product.out_stride = args.grad_weight.row_stride;
  product.accumulate = args.accumulate;
  product.out_past_caches = !args.accumulate;  // read when all other gradients are there, too
  if (args.scratch &&
      args.scratch.count() >= cpu::gemm_panels_bytes(engine, product.columns, product.depth)) {
    product.right_scratch = args.scratch.data;
  }
  return product;
}

void multiply_gradient(CpuDevice& device, const LinearBackwardWeight& args) {
  const GemmEngine& engine = cpu::gemm_engine_unpacked(args.compute);
  cpu::gemm(device, engine, gradient_product(engine, args));
}

void bias_backward(Stream& stream, const TensorView& grad_bias, const TensorView& grad_dst) {
  JIGE_CHECK(grad_bias.dtype == DType::kF32, "grad_bias in {}", dtype_info(grad_bias.dtype).name);
  check_matrix(grad_dst, grad_bias.count(), "grad_dst");
  if (on_cuda(stream)) return cuda_bias_backward(stream, grad_bias, grad_dst);
  CpuStream& cpu = as_cpu(stream);
  CpuDevice& device = cpu.cpu();
  cpu.submit([=, &device] {
    constexpr int64_t kColumnGrain = 64;
    device.team().parallel_for(
        grad_bias.count(), kColumnGrain, [&](int64_t begin, int64_t end, int) {
          const TensorView part = grad_dst.column_range(begin, end);
          cpu::gemm_add_rows(part.data, part.dtype, part.row_stride, part.rows(), end - begin,
                             static_cast<float*>(grad_bias.data) + begin);
        });
  });
}

}  // namespace jige::ops
