#include "model/layer_stream.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/inference.h"
#include "model/model_test_support.h"
#include "model/weights_copy.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::value_of;

std::vector<int32_t> last_layers(int64_t layer_count, int64_t count) {
  std::vector<int32_t> layers(static_cast<size_t>(count));
  std::iota(layers.begin(), layers.end(), static_cast<int32_t>(layer_count - count));
  return layers;
}

// Logits of two sequences side by side, in pieces and token by token.
std::vector<float> logits_of_two(InferenceModel& model) {
  std::vector<int32_t> blocks(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  std::vector<float> all;
  int32_t done[2] = {0, 0};
  int32_t next = 1;
  for (const auto& [first, second] : {std::pair{5, 3}, {4, 1}, {1, 1}, {1, 1}}) {
    const ops::SequenceSpan spans[] = {
        {.row_count = first, .context_count = done[0], .blocks = blocks.data()},
        {.row_begin = first,
         .row_count = second,
         .context_count = done[1],
         .blocks = blocks.data() + blocks.size() / 2,
         .state = 1}};
    std::vector<int32_t> tokens;
    for (int i = 0; i < first + second; ++i) tokens.push_back(next++ * 7 % 31);
    const int32_t rows[] = {first - 1, first + second - 1};
    const auto logits =
        value_of(model.forward({.tokens = tokens, .sequences = spans, .logit_rows = rows}));
    all.insert(all.end(), logits.begin(), logits.end());
    done[0] += first;
    done[1] += second;
  }
  return all;
}

// So many layers, and one to three slots, in turn: fixtures that are alike follow each other.
TEST(LayerStream, GivesTheBitsOfAModelWhoseLayersStay) {
  CpuDevice device({.thread_count = 1});
  int64_t turn = 0;
  for (const std::string name : testing::kFixtureNames) {
    InferenceOptions options{.compute = DType::kBF16, .context_max = 32, .batch_tokens_max = 16};
    options.kv_block_count = 4;
    const auto resident = value_of(InferenceModel::load(fixture(name), device, options));
    EXPECT_EQ(resident->layer_stream(), nullptr);
    const std::vector<float> expected = logits_of_two(*resident);
    const int64_t layer_count = resident->config().layer_count;
    ++turn;
    const int64_t count = 1 + turn % layer_count;
    options.streamed_layers = last_layers(layer_count, count);
    options.slot_count = 1 + turn / layer_count % std::min<int64_t>(count, 3);
    SCOPED_TRACE(::testing::Message()
                 << name << ", " << count << " layers, " << options.slot_count << " slots");
    const auto model = value_of(InferenceModel::load(fixture(name), device, options));
    ASSERT_EQ(logits_of_two(*model), expected);
    const InferenceMemory plan = inference_memory(model->architecture(), model->sizes());
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes());
    EXPECT_EQ(model->layer_stream()->bytes(), plan.weights.streamed_bytes);
    EXPECT_GT(model->layer_stream()->bytes_per_s(), 0);
  }
}

TEST(LayerStream, GivesTheBitsOfMatricesInFewBitsAndOfAnyLayers) {
  CpuDevice device({.thread_count = 1});
  for (const ops::WeightFormat format : {ops::WeightFormat::kQ8, ops::WeightFormat::kQ4}) {
    InferenceOptions options{.compute = DType::kF32, .format = format, .context_max = 32};
    options.kv_block_count = 4;
    const auto resident = value_of(InferenceModel::load(fixture("exaone4"), device, options));
    const std::vector<float> expected = logits_of_two(*resident);
    options.slot_count = 2;
    for (const std::vector<int32_t>& layers :
         {std::vector<int32_t>{0, 2}, {1, 3}, {0, 1, 3}, {2}}) {
      options.streamed_layers = layers;
      const auto model = value_of(InferenceModel::load(fixture("exaone4"), device, options));
      ASSERT_EQ(logits_of_two(*model), expected);
    }
  }
}

TEST(LayerStream, RefusesLayersThatAreNotThereAndAnArenaThatIsTooSmall) {
  CpuDevice device({.thread_count = 1});
  InferenceOptions options{.context_max = 32};
  options.streamed_layers = {1, 4};
  options.slot_count = 2;
  const auto beyond = InferenceModel::load(fixture("exaone4"), device, options);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::kInvalidArgument);

  options.streamed_layers = {0, 1, 2, 3};
  const auto model = value_of(InferenceModel::load(fixture("exaone4"), device, options));
  options.memory_bytes_max = model->peak_bytes();
  EXPECT_TRUE(InferenceModel::load(fixture("exaone4"), device, options));
  --options.memory_bytes_max;
  const auto refused = InferenceModel::load(fixture("exaone4"), device, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
}

// A device whose streams do their work in any order that events and each stream's own leave open,
// by chance, and a copy in two halves: only when somebody waits.
class ChanceDevice final : public Device {
 public:
  using Work = std::function<void()>;
  struct Wait {
    Event event;
  };
  using Step = std::variant<Work, Wait>;

  explicit ChanceDevice(uint64_t seed) : rng_(seed) {}
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const std::string& name() const override { return name_; }
  Result<void*> allocate(int64_t bytes) override {
    return ::operator new (static_cast<size_t>(bytes), std::align_val_t{64});
  }
  void release(void* data, int64_t) override { ::operator delete (data, std::align_val_t{64}); }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::make_unique<ChanceStream>(*this);
  }
  // Adds a kernel of two halves.
  void put(Stream& stream, const Work& half) {
    for (int i = 0; i < 2; ++i) static_cast<ChanceStream&>(stream).steps.emplace_back(half);
  }

 private:
  class DoneState final : public Event::State {
   public:
    explicit DoneState(ChanceDevice& device) : device_(device) {}
    bool complete() const override { return done; }
    void wait() override {
      while (!done) device_.step();
    }
    bool done = false;

   private:
    ChanceDevice& device_;
  };
  class ChanceStream final : public Stream {
   public:
    explicit ChanceStream(ChanceDevice& device) : owner(device) { device.streams_.push_back(this); }
    ~ChanceStream() override {
      synchronize();
      std::erase(owner.streams_, this);
    }
    Device& device() override { return owner; }
    void copy(void* dst, const void* src, int64_t bytes, CopyKind) override {
      const int64_t half = bytes / 2;
      for (const auto& [begin, end] : {std::pair{int64_t{0}, half}, {half, bytes}}) {
        steps.emplace_back(Work([=, begin = begin, end = end] {
          std::memcpy(static_cast<std::byte*>(dst) + begin,
                      static_cast<const std::byte*>(src) + begin, static_cast<size_t>(end - begin));
        }));
      }
    }
    void fill_zero(void*, int64_t) override { FAIL(); }
    Event record() override {
      const auto state = std::make_shared<DoneState>(owner);
      steps.emplace_back(Work([state] { state->done = true; }));
      return Event(state);
    }
    void wait(const Event& event) override { steps.emplace_back(Wait{event}); }
    void synchronize() override {
      while (!steps.empty()) owner.step();
    }

    ChanceDevice& owner;
    std::deque<Step> steps;
  };

  // Does a step of a stream that can go on.
  void step() {
    std::vector<ChanceStream*> ready;
    for (ChanceStream* stream : streams_) {
      if (stream->steps.empty()) continue;
      const auto* const wait = std::get_if<Wait>(&stream->steps.front());
      if (!wait || wait->event.complete()) ready.push_back(stream);
    }
    ASSERT_FALSE(ready.empty()) << "streams wait for one another";
    ChanceStream& stream = *ready[rng_.below(ready.size())];
    const Step next = std::move(stream.steps.front());
    stream.steps.pop_front();
    if (const auto* const work = std::get_if<Work>(&next)) (*work)();
  }

  std::string name_ = "chance";
  Rng rng_;
  std::vector<ChanceStream*> streams_;
};

// Every kernel of a layer sees its own weights, all of them, however late and early streams are.
void expect_own_weights(uint64_t seed, std::vector<int32_t> layers, int64_t slot_count) {
  ChanceDevice device(seed);
  Arena arena(device, "weights");
  const auto config = formats::load_model_config(fixture("exaone4"));
  const auto architecture = value_of(Architecture::create(*config));
  const auto weights = value_of(ModelWeights::create(
      arena, *architecture,
      {.use = PackFor::kInference, .streamed_layers = layers, .slot_count = slot_count}));
  const auto compute = value_of(device.make_stream());
  const auto stream = value_of(LayerStream::create(weights, device));
  for (const int32_t layer : layers) {
    const auto node = static_cast<size_t>(layer) + 1;
    const TensorView& slot = weights.slots().front();
    std::memset(slot.data, layer + 1, static_cast<size_t>(slot.count()));
    stream->keep(*compute, node);
  }
  stream->start();
  for (int forward = 0; forward < 3; ++forward) {
    for (size_t node = 1; node < architecture->head_node(); ++node) {
      if (!stream->has(node)) {
        device.put(*compute, [] {});
        continue;
      }
      const TensorView packed = stream->use(*compute, node).packed;
      device.put(*compute, [packed, node] {
        const auto* const at = packed.as<std::byte>();
        const bool own = std::all_of(at, at + packed.count(), [node](std::byte b) {
          return b == static_cast<std::byte>(node);
        });
        ASSERT_TRUE(own) << "layer " << node - 1;
      });
      stream->done(*compute, node);
    }
    if (forward == 1) compute->synchronize();
  }
  compute->synchronize();
}

TEST(LayerStream, BringsALayerBeforeItComputesAndNoOtherUntilItHas) {
  const std::vector<int32_t> choices[] = {{2}, {0, 3}, {0, 1, 3}, {0, 1, 2, 3}};
  for (uint64_t seed = 0; seed < 25; ++seed) {
    for (const std::vector<int32_t>& layers : choices) {
      for (int64_t slots = 1; slots <= 3; ++slots) {
        expect_own_weights(seed, layers, slots);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(LayerStream, CopiesInPieces) {
  CpuDevice device({.thread_count = 1});
  const auto stream = value_of(device.make_stream());
  std::vector<std::byte> src(100), dst(101);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<std::byte>(i + 1);
  for (const int64_t piece : {1, 7, 50, 99, 100, 1000}) {
    std::fill(dst.begin(), dst.end(), std::byte{0});
    copy_in_pieces(*stream,
                   {.dst = dst.data(), .src = src.data(), .bytes = 100, .piece_bytes = piece});
    EXPECT_TRUE(std::equal(src.begin(), src.end(), dst.begin())) << piece;
    EXPECT_EQ(dst.back(), std::byte{0});
  }
}

}  // namespace
}  // namespace jige::model
