// Layers of several machines: as many for each as its memory holds.
#include "serve/layer_division.h"

#include <string>

#include "model/inference.h"
#include "model/inference_folder.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::value_of;

TEST(LayerDivision, FillsTheMemoryOfEachToTheByte) {
  const model::InferenceFolder folder =
      value_of(model::open_inference_folder(fixture("llama3"), false, DeviceKind::kCpu));
  const model::InferenceOptions options{
      .context_max = 64, .kv_block_count = 8, .batch_tokens_max = 48, .logit_rows_max = 4};
  DivisionRequest request{
      .architecture = [&](bool) -> const model::Architecture& { return *folder.architecture; },
      .sizes = value_of(model::inference_sizes(options, *folder.architecture, folder.files)),
      .piece_rows_max = 16,
      .places = {{.name = "here"}, {.name = "there"}},
      .beside_bytes = 1000};
  for (LayerPlace& place : request.places) place.computer.bytes_per_s = 1'000'000;
  const int64_t layers = folder.architecture->config().layer_count;
  for (int64_t first = 0; first < layers; ++first) {
    const std::vector<int64_t> counts = {first, layers - first};
    const std::vector<model::LayerRange> ranges = ranges_of(counts);
    for (size_t i = 0; i < ranges.size(); ++i) {
      request.places[i].memory_bytes = place_memory(request, i, ranges[i]).total_bytes();
    }
    request.places[0].memory_bytes += request.beside_bytes;
    EXPECT_EQ(value_of(divide_layers(request)), counts);
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;  // needs no room for layers
      LayerPlace& place = request.places[i];
      --place.memory_bytes;
      const auto refused = divide_layers(request);
      ASSERT_FALSE(refused) << place.name << " with " << first << " layers first";
      EXPECT_EQ(refused.error().code, Code::kExhausted);
      ++place.memory_bytes;
    }
  }
}

}  // namespace
}  // namespace jige::serve
