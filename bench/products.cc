#include "products.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "timing.h"

#ifdef JIGE_BENCH_DNNL
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace jige::bench {

const char* form_name(Form form) {
  constexpr const char* kNames[] = {"forward", "input", "weight"};
  return kNames[static_cast<int>(form)];
}

double Product::flops() const {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) *
         static_cast<double>(outputs);
}

void wait_until_quiet() {
  // A window spans several ticks of the kernel, which counts a running thread's time by the tick.
  constexpr double kWindow_s = 0.012;
  constexpr double kQuietShare = 0.1;
  constexpr int kWindowsMax = 50;
  double before = processor_seconds();
  for (int window = 0; window < kWindowsMax; ++window) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kWindow_s));
    const double now = processor_seconds();
    if (now - before < kQuietShare * kWindow_s) return;
    before = now;
  }
}

namespace {

// Whole numbers from -8 to 7, in a weight of bf16.
void put_on_even_levels(const TensorView& weight) {
  uint32_t state = 1;
  for (int64_t i = 0; i < weight.count(); ++i) {
    state = state * 1664525 + 1013904223;
    weight.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(state >> 28) - 8);
  }
}

}  // namespace

OurProduct::OurProduct(Machine& machine, const Product& product, int64_t copies)
    : machine_(machine),
      product_(product),
      src_(random_tensor(machine, product.type, Shape{product.tokens, product.inputs})),
      dst_(random_tensor(machine, product.type, Shape{product.tokens, product.outputs})) {
  const Shape matrix{product.outputs, product.inputs};
  if (product.form == Form::kWeight) {
    for (int64_t i = 0; i < copies; ++i) {
      memory_.push_back(std::move(*machine.arena.make_zero(DType::kF32, matrix)));
    }
    const int64_t bytes =
        ops::linear_backward_weight_scratch_bytes(product.type, product.tokens, product.inputs);
    if (bytes > 0) scratch_ = std::move(*machine.arena.make(DType::kU8, Shape{bytes}));
    return;
  }
  weight_ = random_tensor(machine, product.type, matrix);
  if (product.even_levels) put_on_even_levels(weight_.view());
  const bool quantised = product.format != ops::WeightFormat::kCompute;
  const auto use = quantised || product.form == Form::kForward ? ops::PackUse::kForward
                                                               : ops::PackUse::kInputGradient;
  if (product.numbers && quantised) {
    const int64_t bytes = ops::linear_strip_bytes(product.type, product.outputs, product.inputs);
    strip_ = std::move(*machine.arena.make(DType::kU8, Shape{bytes}));
  }
  packed_bytes_ =
      ops::packed_weight_bytes(product.type, use, product.outputs, product.inputs, product.format);
  for (int64_t i = 0; i < copies; ++i) {
    memory_.push_back(std::move(*machine.arena.make(DType::kU8, Shape{packed_bytes_})));
    packed_.push_back({memory_.back().view().data, product.type, use, product.outputs,
                       product.inputs, product.format});
    pack(i);
  }
}

void OurProduct::pack(int64_t copy) {
  ops::pack_weight(*machine_.stream, packed_[static_cast<size_t>(copy)], weight_.view());
  machine_.stream->synchronize();
}

void OurProduct::call(int64_t copy) {
  const auto i = static_cast<size_t>(copy);
  switch (product_.form) {
    case Form::kForward:
      return call_rows(copy, product_.tokens);
    case Form::kInput:
      ops::linear_backward_input(*machine_.stream, {.grad_src = src_.view(),
                                                    .grad_dst = dst_.view(),
                                                    .weight = packed_[i],
                                                    .strip = strip_.view()});
      break;
    case Form::kWeight:
      ops::linear_backward_weight(*machine_.stream, {.grad_weight = memory_[i].view(),
                                                     .grad_dst = dst_.view(),
                                                     .src = src_.view(),
                                                     .compute = product_.type,
                                                     .scratch = scratch_.view(),
                                                     .accumulate = product_.accumulates});
      break;
  }
  machine_.stream->synchronize();
}

void OurProduct::call_rows(int64_t copy, int64_t rows) {
  ops::linear_forward(*machine_.stream, {.dst = dst_.view().row_range(0, rows),
                                         .src = src_.view().row_range(0, rows),
                                         .weight = packed_[static_cast<size_t>(copy)],
                                         .strip = strip_.view()});
  machine_.stream->synchronize();
}

#ifdef JIGE_BENCH_DNNL
namespace {

using dnnl::memory;

// Numbers near one in either type, never zeros or subnormals, which would flatter or punish.
void fill(const memory& values) {
  auto* halves = static_cast<uint16_t*>(values.get_data_handle());
  const size_t count = values.get_desc().get_size() / 2;
  for (size_t i = 0; i < count; ++i) halves[i] = static_cast<uint16_t>(0x3f00 + i * 37 % 256);
}

class Matmul final : public PeerProduct {
 public:
  Matmul(const Product& product, int64_t copies)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const auto type =
        product.type == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
    const auto tag = memory::format_tag::ab;
    const bool weight = product.form == Form::kWeight;
    const bool input = product.form == Form::kInput;
    const int64_t rows = weight ? product.outputs : product.tokens;
    const int64_t depth = weight ? product.tokens : input ? product.outputs : product.inputs;
    const int64_t columns = product.form == Form::kForward ? product.outputs : product.inputs;
    const memory::desc left({rows, depth}, type, weight ? memory::format_tag::ba : tag);
    const memory::desc right({depth, columns}, type, weight ? tag : memory::format_tag::any);
    const memory::desc out({rows, columns}, weight ? memory::data_type::f32 : type, tag);
    dnnl::primitive_attr attributes;
    if (weight && product.accumulates) {
      dnnl::post_ops accumulate;
      accumulate.append_sum(1.0f);
      attributes.set_post_ops(accumulate);
    }
    const dnnl::matmul::primitive_desc description({left, right, out}, attributes, engine_);
    implementation_ = description.impl_info_str();
    product_ = dnnl::matmul(description);
    left_ = memory(left, engine_);
    fill(left_);
    for (int64_t i = 0; i < (weight ? 1 : copies); ++i) {
      rights_.emplace_back(description.weights_desc(), engine_);
      fill(rights_.back());
    }
    for (int64_t i = 0; i < (weight ? copies : 1); ++i) {
      outs_.emplace_back(out, engine_);
      fill(outs_.back());
    }
  }
  const std::string& implementation() const { return implementation_; }

  void call(int64_t copy) override {
    const auto i = static_cast<size_t>(copy);
    product_.execute(stream_, {{DNNL_ARG_SRC, left_},
                               {DNNL_ARG_WEIGHTS, rights_[rights_.size() > 1 ? i : 0]},
                               {DNNL_ARG_DST, outs_[outs_.size() > 1 ? i : 0]}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  memory left_;
  std::vector<memory> rights_, outs_;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<PeerProduct> PeerProduct::create(const Product& product, int64_t copies) {
  try {
    auto peer = std::make_unique<Matmul>(product, copies);
    if (peer->implementation().find("ref") != std::string::npos) return nullptr;
    return peer;
  } catch (const dnnl::error&) {
    return nullptr;  // not on this machine
  }
}

std::string peer_name() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("oneDNN {}.{}.{}, matmul", version.major, version.minor, version.patch);
}

void set_peer_threads(int count) {
  using SetThreads = void (*)(int);
  if (auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) {
    set(count);
  }
}
#else
std::unique_ptr<PeerProduct> PeerProduct::create(const Product&, int64_t) { return nullptr; }
std::string peer_name() { return ""; }
void set_peer_threads(int) {}
#endif

}  // namespace jige::bench
