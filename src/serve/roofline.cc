#include "serve/roofline.h"

#include <cmath>

namespace jige::serve {
namespace {

constexpr double kMemorySeconds = 10;

// Parameters of a block that are matrices to multiply with: a table is looked up instead.
double matrix_parameters(const model::Block& block) {
  double count = 0;
  for (const model::ParamSpec& spec : block.params()) {
    if (spec.shape.rank() == 2 && spec.packed) count += static_cast<double>(spec.shape.count());
  }
  return count;
}

}  // namespace

RooflineModel::RooflineModel(const model::Architecture& architecture,
                             const model::InferenceSizes& sizes) {
  const formats::ModelConfig& config = architecture.config();
  for (const auto& layer : architecture.layers()) body_parameters_ += matrix_parameters(*layer);
  head_parameters_ =
      static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const auto parameter_bytes = static_cast<double>(dtype_bytes(sizes.compute, 1));
  body_bytes_ = body_parameters_ * parameter_bytes;
  head_bytes_ = head_parameters_ * parameter_bytes;
  // A product of queries and keys and one of probabilities and values, over the layer's cache or
  // that of the one whose keys it has.
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const int64_t source = formats::key_source(config, layer);
    if (!model::has_cache(config, source)) continue;
    const int64_t width = model::cache_shape(config, source).head_dim;
    kv_bytes_per_token_ +=
        static_cast<double>(model::cache_bytes(config, source, sizes.kv_dtype, 1)) /
        static_cast<double>(ops::kKvBlockTokens);
    attention_flops_ += 4.0 * static_cast<double>(config.head_count * width);
  }
}

void RooflineModel::add_forward(RooflineSample& sample,
                                std::span<const ops::SequenceSpan> sequences,
                                int64_t logit_rows) const {
  double rows = 0;
  double keys = 0;
  double pairs = 0;
  for (const ops::SequenceSpan& sequence : sequences) {
    const double count = sequence.row_count;
    rows += count;
    keys += sequence.context_count + count;
    pairs += count * sequence.context_count + count * (count + 1) / 2;
  }
  sample.bytes += body_bytes_ + (logit_rows > 0 ? head_bytes_ : 0) + keys * kv_bytes_per_token_;
  sample.flops += 2 * body_parameters_ * rows +
                  2 * head_parameters_ * static_cast<double>(logit_rows) + attention_flops_ * pairs;
  sample.tokens += static_cast<int64_t>(rows);
}

void RecentWork::add(const RooflineSample& sample, int64_t requests_finished) {
  const double kept = std::exp(-sample.seconds / kMemorySeconds);
  sum_.bytes = sum_.bytes * kept + sample.bytes;
  sum_.flops = sum_.flops * kept + sample.flops;
  sum_.seconds = sum_.seconds * kept + sample.seconds;
  tokens_ = tokens_ * kept + static_cast<double>(sample.tokens);
  sum_.tokens = std::llround(tokens_);
  finished_ = finished_ * kept + static_cast<double>(requests_finished);
}

}  // namespace jige::serve
