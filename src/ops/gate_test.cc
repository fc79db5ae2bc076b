#include "ops/gate.h"

#include <fmt/format.h>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;

constexpr GateKind kGateKinds[] = {GateKind::kSigmoid, GateKind::kSilu, GateKind::kPlain};
constexpr DType kGateTypes[] = {DType::kF32, DType::kBF16};

double gate_factor(GateKind kind, double gate) {
  if (kind == GateKind::kPlain) return gate;
  const double s = 1 / (1 + std::exp(-gate));
  return kind == GateKind::kSilu ? gate * s : s;
}

struct GateOperands {
  Matrix dst, src, gate;

  GateOperands(DType dst_type, DType src_type, DType gate_type, int64_t rows, int64_t columns)
      : dst(dst_type, rows, columns), src(src_type, rows, columns), gate(gate_type, rows, columns) {
    Rng rng(11);
    src.fill_normal(rng);
    gate.fill_normal(rng, 3);
  }
};

// Calls body(operands, kind) for all kinds, types and some widths.
void for_gate_cases(const std::function<void(GateOperands&, GateKind)>& body) {
  for (const GateKind kind : kGateKinds) {
    for (const int64_t columns : {1, 16, 23, 40}) {
      for (const DType dst : kGateTypes) {
        for (const DType src : kGateTypes) {
          for (const DType gate : kGateTypes) {
            GateOperands operands(dst, src, gate, 5, columns);
            body(operands, kind);
          }
        }
      }
    }
  }
}

double gate_dot(GateKind kind, const Values& src, const Values& gate, const Values& grad) {
  double sum = 0;
  for (size_t i = 0; i < grad.size(); ++i) sum += grad[i] * src[i] * gate_factor(kind, gate[i]);
  return sum;
}

TEST(Gate, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for_gate_cases([&](GateOperands& operands, GateKind kind) {
      gate_forward(*stream, operands.dst.view(), operands.src.view(), operands.gate.view(), kind);
      Values expected = operands.src.values();
      const Values gate = operands.gate.values();
      for (size_t i = 0; i < gate.size(); ++i) expected[i] *= gate_factor(kind, gate[i]);
      test::expect_near(operands.dst, expected, 1e-6, 0, fmt::format("kind {}", int(kind)));
    });
  });
}

TEST(Gate, BackwardAgreesWithFiniteDifferences) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for_gate_cases([&](GateOperands& operands, GateKind kind) {
      Rng rng(12);
      Matrix& grad_dst = operands.dst.fill_normal(rng);
      const Values grad = grad_dst.values();
      const Values src = operands.src.values();
      const Values gate = operands.gate.values();
      Matrix grad_src(operands.src.dtype(), 5, grad_dst.columns());
      Matrix grad_gate(operands.gate.dtype(), 5, grad_dst.columns());
      gate_backward(*stream, grad_src.view(), grad_gate.view(), grad_dst.view(),
                    operands.src.view(), operands.gate.view(), kind);
      const std::string what = fmt::format("kind {}", int(kind));
      test::expect_near(grad_src,
                        test::finite_difference(
                            [&](const Values& at) { return gate_dot(kind, at, gate, grad); }, src),
                        1e-6, 1e-7, what);
      test::expect_near(grad_gate,
                        test::finite_difference(
                            [&](const Values& at) { return gate_dot(kind, src, at, grad); }, gate),
                        1e-6, 1e-6, what);
    });
  });
}

TEST(Gate, ResultsMayTakeThePlaceOfOperands) {
  test::TestStream stream;
  for (const GateKind kind : kGateKinds) {
    GateOperands in(DType::kBF16, DType::kBF16, DType::kF32, 5, 40);
    gate_forward(*stream, in.dst.view(), in.src.view(), in.gate.view(), kind);
    Matrix placed = in.src;
    gate_forward(*stream, placed.view(), placed.view(), in.gate.view(), kind);
    EXPECT_TRUE(placed == in.dst);

    Matrix grad_src(DType::kBF16, 5, 40), grad_gate(DType::kF32, 5, 40), placed_gate = grad_gate;
    gate_backward(*stream, grad_src.view(), grad_gate.view(), in.dst.view(), in.src.view(),
                  in.gate.view(), kind);
    gate_backward(*stream, in.dst.view(), placed_gate.view(), in.dst.view(), in.src.view(),
                  in.gate.view(), kind);
    EXPECT_TRUE(in.dst == grad_src);
    EXPECT_TRUE(placed_gate == grad_gate);
  }
}

TEST(Gate, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const GateKind kind : kGateKinds) {
    test::expect_same_bits_everywhere([&](Stream& stream) {
      GateOperands in(DType::kBF16, DType::kF32, DType::kBF16, 211, 321);
      gate_forward(stream, in.dst.view(), in.src.view(), in.gate.view(), kind);
      Matrix grad_src(DType::kF32, 211, 321), grad_gate(DType::kBF16, 211, 321);
      gate_backward(stream, grad_src.view(), grad_gate.view(), in.dst.view(), in.src.view(),
                    in.gate.view(), kind);
      return std::tuple(in.dst, grad_src, grad_gate);
    });
  }
}

}  // namespace
}  // namespace jige::ops
