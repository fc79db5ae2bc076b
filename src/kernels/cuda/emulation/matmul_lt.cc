#include "kernels/cuda/matmul_lt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/emulated.h"
#include "tensor/dtype.h"

namespace jige::cuda {
namespace {

using cpu::ConstRows;
using cpu::ElementType;

float element_at(const void* data, ElementType type, int64_t at) {
  return type == ElementType::kF32 ? static_cast<const float*>(data)[at]
                                   : to_float(static_cast<const BFloat16*>(data)[at]);
}

float operand_at(const ConstRows& rows, bool across, int64_t line, int64_t d) {
  return element_at(rows.data, rows.type, across ? d * rows.stride + line : line * rows.stride + d);
}

// As the library demands it: rows of `columns` elements, aligned ones.
void check_aligned(const void* data, ElementType type, int64_t stride, int64_t columns,
                   const char* name) {
  const int64_t bytes = stride * (type == ElementType::kF32 ? 4 : 2);
  JIGE_CHECK(reinterpret_cast<uintptr_t>(data) % kMatmulLtAlignment == 0 &&
                 bytes % kMatmulLtAlignment == 0 && stride >= columns,
             "{} at {} with rows of {} at a stride of {}", name, data, columns, stride);
}

void check_product(const Product& product) {
  const auto check_operand = [&](const ConstRows& rows, bool across, int64_t lines,
                                 const char* name) {
    JIGE_CHECK(rows.type == ElementType::kBf16, "{} is not bf16", name);
    check_aligned(rows.data, rows.type, rows.stride, across ? lines : product.depth, name);
  };
  JIGE_CHECK(product.rows > 0 && product.columns > 0 && product.depth > 0, "an empty product");
  check_operand(product.left, product.left_across, product.rows, "left");
  check_operand(product.right, product.right_across, product.columns, "right");
  check_aligned(product.out.data, product.out.type, product.out.stride, product.columns, "out");
  check_aligned(product.bias, product.out.type, 0, 0, "bias");
  if (product.addend.data) {
    check_aligned(product.addend.data, product.addend.type, product.addend.stride, product.columns,
                  "addend");
    JIGE_CHECK(!product.accumulate && product.addend.type == ElementType::kF32 &&
                   product.out.type == ElementType::kF32,
               "an addend that is not f32, or one too many");
  }
  JIGE_CHECK(!product.accumulate || (!product.bias && product.out.type == ElementType::kF32),
             "accumulates with a bias or in bf16");
}

constexpr int64_t kColumns = 32;  // that are summed side by side

// Stores what a sum of products and the product's other terms make of an element.
void store(const Product& product, int64_t row, int64_t column, float sum) {
  const int64_t at = row * product.out.stride + column;
  if (product.bias) sum += element_at(product.bias, product.out.type, column);
  if (product.addend.data) {
    sum += element_at(product.addend.data, ElementType::kF32, row * product.addend.stride + column);
  }
  if (product.accumulate) sum += static_cast<const float*>(product.out.data)[at];
  if (product.out.type == ElementType::kF32) {
    static_cast<float*>(product.out.data)[at] = sum;
  } else {
    static_cast<BFloat16*>(product.out.data)[at] = to_bfloat16(sum);
  }
}

// Every sum in ascending order of the depth, one fused step each.
void multiply_one(const Product& product) {
  const int64_t depth = product.depth;
  std::vector<float> left(static_cast<size_t>(product.rows * depth));  // [rows][depth]
  for (int64_t row = 0; row < product.rows; ++row) {
    for (int64_t d = 0; d < depth; ++d) {
      left[static_cast<size_t>(row * depth + d)] =
          operand_at(product.left, product.left_across, row, d);
    }
  }
  std::vector<std::array<float, kColumns>> right(static_cast<size_t>(depth));
  for (int64_t begin = 0; begin < product.columns; begin += kColumns) {
    const int64_t count = std::min(kColumns, product.columns - begin);
    for (int64_t d = 0; d < depth; ++d) {
      for (int64_t c = 0; c < count; ++c) {
        right[static_cast<size_t>(d)][static_cast<size_t>(c)] =
            operand_at(product.right, product.right_across, begin + c, d);
      }
    }
    for (int64_t row = 0; row < product.rows; ++row) {
      std::array<float, kColumns> sums{};
      const float* lefts = left.data() + row * depth;
      for (const std::array<float, kColumns>& rights : right) {
        const float factor = *lefts++;
        for (size_t c = 0; c < kColumns; ++c) sums[c] = std::fma(factor, rights[c], sums[c]);
      }
      for (int64_t c = 0; c < count; ++c) {
        store(product, row, begin + c, sums[static_cast<size_t>(c)]);
      }
    }
  }
}

}  // namespace

Status matmul_lt_ready() { return {}; }

int64_t matmul_lt_workspace_bytes() { return 0; }

namespace {

void multiply_all(int gpu, const Product& product) {
  const ProductBatch& batch = product.batch;
  const emulation::DeviceMemory::Access access(gpu);
  for (int64_t i = 0; i < batch.count; ++i) {
    const auto skip = [i](const void* data, ElementType type, int64_t step) {
      return static_cast<const std::byte*>(data) + i * step * (type == ElementType::kF32 ? 4 : 2);
    };
    Product one = product;
    one.left.data = skip(product.left.data, product.left.type, batch.left_step);
    one.right.data = skip(product.right.data, product.right.type, batch.right_step);
    one.out.data = const_cast<std::byte*>(skip(product.out.data, product.out.type, batch.out_step));
    check_product(one);
    multiply_one(one);
  }
}

}  // namespace

void multiply_lt(const LaunchStream& stream, const Product& product, void* workspace) {
  if (!stream.takes(product, workspace)) return;
  JIGE_CHECK(
      product.batch.count == 1 || (!product.bias && !product.accumulate && !product.addend.data),
      "a batch with a bias or an addend");
  const int gpu = emulation::gpu_of(stream);
  for (const void* data : {product.left.data, product.right.data, product.addend.data,
                           static_cast<const void*>(product.out.data)}) {
    JIGE_CHECK(!emulation::DeviceMemory::belongs_to_other(gpu, reinterpret_cast<uint64_t>(data)),
               "a product on GPU {} of another's memory", gpu);
  }
  emulation::submit(stream, [gpu, product] { multiply_all(gpu, product); });
}

}  // namespace jige::cuda
