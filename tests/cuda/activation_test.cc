// Activations and gates on a GPU, beside those of the CPU.
#include "cuda/test_device.h"
#include "ops/elementwise.h"
#include "ops/gate.h"
#include "ops/xielu.h"

namespace jige {
namespace {

class CudaActivation : public CudaTest {
 protected:
  // Little more than one rounding to the type.
  static double tolerance_of(DType dtype) { return dtype == DType::kF32 ? 2e-6 : 0x1p-8; }
  static constexpr int64_t kRows = 5;
  // A matrix with a gap between rows, and the view of `width` columns from `begin` on.
  struct Gapped {
    Pair whole, view;
  };
  Gapped gapped(DType dtype, int64_t width, int64_t begin = 8, float deviation = 2.0f) {
    const Pair whole = random(dtype, {kRows, (width + 23) / 8 * 8}, deviation);
    const int64_t end = begin + width;
    return {whole, {whole.host.column_range(begin, end), whole.gpu.column_range(begin, end)}};
  }
  // Calls test(type of gradients and results, type of sources, width, first column).
  template <typename Test>
  void for_shapes(Test test) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const DType source : {DType::kF32, DType::kBF16}) {
        test(dtype, source, 1, 8);
        test(dtype, source, 96, 8);
        test(dtype, source, 96, 3);
        test(dtype, source, 61, 8);
        if (!test_device_is_emulated()) test(dtype, source, 11008, 8);
      }
    }
  }
};

TEST_F(CudaActivation, GatesAsTheCpuDoes) {
  for_shapes([&](DType dtype, DType source, int64_t width, int64_t begin) {
    const Gapped gate_up = gapped(source, 2 * width, begin);
    const Gapped dst = gapped(dtype, width), grad = gapped(dtype, width, begin);
    for (const auto& forward : {ops::swiglu_forward, ops::geglu_forward, ops::geglu_erf_forward}) {
      forward(*cpu_stream_, dst.view.host, gate_up.view.host);
      forward(*gpu_stream_, dst.view.gpu, gate_up.view.gpu);
      expect_near(dst.whole, tolerance_of(dtype), "forward");
    }
    for (const auto& backward :
         {ops::swiglu_backward, ops::geglu_backward, ops::geglu_erf_backward}) {
      const Gapped grad_src = gapped(dtype, 2 * width);
      const Gapped again = gapped(source, width);
      backward(*cpu_stream_, grad_src.view.host, grad.view.host, gate_up.view.host,
               again.view.host);
      backward(*gpu_stream_, grad_src.view.gpu, grad.view.gpu, gate_up.view.gpu, again.view.gpu);
      expect_near(grad_src.whole, 4 * tolerance_of(dtype), "gradient");
      expect_near(again.whole, tolerance_of(source), "activated");
    }
  });
}

TEST_F(CudaActivation, GradientsOfGatesMayTakeTheirPlace) {
  for (const bool keep : {false, true}) {
    const Pair gate_up = random(DType::kBF16, {kRows, 128});
    const Pair grad = random(DType::kBF16, {kRows, 64});
    const Pair grad_src = keep ? random(DType::kBF16, {kRows, 128}) : gate_up;
    // The activated numbers take the gates' place, or there are none.
    const auto activated = [keep](const TensorView& view) {
      return keep ? view.column_range(0, 64) : TensorView{};
    };
    ops::swiglu_backward(*cpu_stream_, grad_src.host, grad.host, gate_up.host,
                         activated(gate_up.host));
    ops::swiglu_backward(*gpu_stream_, grad_src.gpu, grad.gpu, gate_up.gpu, activated(gate_up.gpu));
    expect_near(grad_src, 0x1p-7);
    expect_near(gate_up, 0x1p-7);
  }
}

TEST_F(CudaActivation, ActivatesAsTheCpuDoes) {
  using ops::Activation;
  for_shapes([&](DType dtype, DType source, int64_t width, int64_t begin) {
    for (const Activation kind : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu,
                                  Activation::kReluSquared, Activation::kSilu}) {
      const std::string what = fmt::format("activation {}", static_cast<int>(kind));
      const Gapped src = gapped(source, width, begin), grad = gapped(dtype, width);
      const Gapped dst = gapped(dtype, width), grad_src = gapped(dtype, width);
      ops::activation_forward(*cpu_stream_, dst.view.host, src.view.host, kind);
      ops::activation_forward(*gpu_stream_, dst.view.gpu, src.view.gpu, kind);
      expect_near(dst.whole, tolerance_of(dtype), what);
      ops::activation_backward(*cpu_stream_, grad_src.view.host, grad.view.host, src.view.host,
                               kind);
      ops::activation_backward(*gpu_stream_, grad_src.view.gpu, grad.view.gpu, src.view.gpu, kind);
      expect_near(grad_src.whole, tolerance_of(dtype), what + " gradient");
    }
  });
}

TEST_F(CudaActivation, MultipliesWithAGateAsTheCpuDoes) {
  using ops::GateKind;
  for_shapes([&](DType dtype, DType source, int64_t width, int64_t begin) {
    for (const GateKind kind : {GateKind::kSigmoid, GateKind::kSilu, GateKind::kPlain}) {
      const Gapped src = gapped(source, width, begin), gate = gapped(source, width);
      const Gapped dst = gapped(dtype, width), grad = gapped(dtype, width);
      const Gapped grad_src = gapped(dtype, width), grad_gate = gapped(source, width);
      ops::gate_forward(*cpu_stream_, dst.view.host, src.view.host, gate.view.host, kind);
      ops::gate_forward(*gpu_stream_, dst.view.gpu, src.view.gpu, gate.view.gpu, kind);
      expect_near(dst.whole, tolerance_of(dtype), "forward");
      ops::gate_backward(*cpu_stream_, grad_src.view.host, grad_gate.view.host, grad.view.host,
                         src.view.host, gate.view.host, kind);
      ops::gate_backward(*gpu_stream_, grad_src.view.gpu, grad_gate.view.gpu, grad.view.gpu,
                         src.view.gpu, gate.view.gpu, kind);
      expect_near(grad_src.whole, tolerance_of(dtype), "gradient of src");
      expect_near(grad_gate.whole, 4 * tolerance_of(source), "gradient of gate");
    }
  });
}

TEST_F(CudaActivation, LearnedCurvesAreThoseOfTheCpu) {
  const Pair numbers = random(DType::kF32, {4});
  for (const auto& [alpha_p, alpha_n] : {std::pair{0.4f, -0.7f}, std::pair{25.0f, 1.0f}}) {
    for (int i = 0; i < 4; ++i) {
      set(numbers.host, i, std::array{alpha_p, alpha_n, 0.5f, -1e-6f}[static_cast<size_t>(i)]);
    }
    to_gpu(numbers);
    const auto curve = [](const TensorView& of) {
      const TensorView column = of.reshaped({4, 1});
      return ops::Xielu{column.row_range(0, 1), column.row_range(1, 2), column.row_range(2, 3),
                        column.row_range(3, 4)};
    };
    for_shapes([&](DType dtype, DType source, int64_t width, int64_t begin) {
      const Gapped src = gapped(source, width, begin), grad = gapped(dtype, width);
      const Gapped dst = gapped(dtype, width), grad_src = gapped(dtype, width);
      const Pair slopes = filled(DType::kF32, {kRows, 2});
      ops::xielu_forward(*cpu_stream_, curve(numbers.host), dst.view.host, src.view.host);
      ops::xielu_forward(*gpu_stream_, curve(numbers.gpu), dst.view.gpu, src.view.gpu);
      expect_near(dst.whole, tolerance_of(dtype), "forward");
      ops::xielu_backward(*cpu_stream_, curve(numbers.host), grad_src.view.host, grad.view.host,
                          src.view.host, slopes.host);
      ops::xielu_backward(*gpu_stream_, curve(numbers.gpu), grad_src.view.gpu, grad.view.gpu,
                          src.view.gpu, slopes.gpu);
      expect_near(grad_src.whole, 2 * tolerance_of(dtype), "gradient");
      expect_near(slopes, 1e-4, "slopes");
    });
  }
}

}  // namespace
}  // namespace jige
