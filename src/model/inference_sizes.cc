#include "model/inference_sizes.h"

#include <algorithm>

#include "base/check.h"
#include "model/batch_limits.h"
#include "model/weights_layout.h"

namespace jige::model {
namespace {

constexpr int64_t kBatchTokensLimit = int64_t{1} << 20;
constexpr int64_t kAdapterRoomsLimit = 4096;
constexpr int64_t kStatesLimit = int64_t{1} << 16;
constexpr int64_t kAdapterRankLimit = 4096;
constexpr int64_t kForwardsLimit = 1024;

Status add_rooms(const InferenceOptions& options, const Architecture& architecture,
                 InferenceSizes& sizes) {
  JIGE_DO(check_range("the number of adapters that may be loaded", options.adapter_rooms, 0,
                      kAdapterRoomsLimit));
  if (options.adapter_rooms == 0) return {};
  JIGE_DO(check_range("the rank of adapters that may be loaded", options.adapter_rank_max, 1,
                      kAdapterRankLimit));
  const AdapterRoom room = Adapter::room(architecture, options.adapter_rank_max, sizes.compute);
  AdapterSizes& all = sizes.adapters;
  all.packed_bytes.insert(all.packed_bytes.end(), static_cast<size_t>(options.adapter_rooms),
                          room.packed_bytes);
  all.product_columns = std::max(all.product_columns, room.product_columns);
  all.part_outputs = std::max(all.part_outputs, room.part_outputs);
  return {};
}

}  // namespace

Result<InferenceSizes> inference_sizes_with(const std::vector<Adapter>& adapters,
                                            const InferenceOptions& options,
                                            const Architecture& architecture, DType table_dtype) {
  const formats::ModelConfig& config = architecture.config();
  InferenceSizes sizes{.table_dtype = table_dtype};
  const bool wide = sizes.table_dtype == DType::kF32;
  sizes.compute = options.compute.value_or(wide ? DType::kF32 : DType::kBF16);
  JIGE_DO(check_weight_format(architecture, options.format));
  sizes.format = options.format;
  sizes.kv_dtype = options.kv_dtype.value_or(sizes.compute);
  if (sizes.kv_dtype != DType::kF32 && sizes.kv_dtype != DType::kBF16 &&
      sizes.kv_dtype != DType::kI8) {
    return fail(Code::kInvalidArgument,
                "key/value cache type {} is not supported; use f32, bf16 or i8",
                dtype_info(sizes.kv_dtype).name);
  }
  sizes.context_max = options.context_max > 0 ? options.context_max
                                              : std::min(config.context_max, kContextDefaultMax);
  JIGE_DO(formats::check_context(config, sizes.context_max));
  // Embeddings: the longest text, and beside its end a batch of others.
  const int64_t beside = options.embeds ? kv_blocks_for(options.batch_tokens_max) : 0;
  sizes.kv_block_count = options.kv_block_count > 0 ? options.kv_block_count
                                                    : kv_blocks_for(sizes.context_max) + beside;
  JIGE_DO(check_range("the number of cache blocks", sizes.kv_block_count, 1, INT32_MAX));
  if (formats::recurrent_layer_count(config) > 0) {
    const int64_t usual = options.embeds ? kStatesOfEmbeds : kStatesDefault;
    sizes.state_count = options.state_count > 0 ? options.state_count : usual;
    JIGE_DO(check_range("the number of states", sizes.state_count, 1, kStatesLimit));
  }
  JIGE_DO(check_range("the tokens of a batch", options.batch_tokens_max, 1, kBatchTokensLimit));
  JIGE_DO(check_range("the rows of logits", options.logit_rows_max, 1, options.batch_tokens_max));
  sizes.batch_tokens_max = forward_rows(config, options.batch_tokens_max, sizes.context_max);
  sizes.whole_texts = config.looks_ahead;
  JIGE_DO(check_range("the tokens of a text", sizes.batch_tokens_max, 1, kBatchTokensLimit));
  sizes.logit_rows_max = options.logit_rows_max;
  JIGE_DO(check_range("the forwards under way at once", options.forwards_max, 1, kForwardsLimit));
  sizes.forwards_max = options.forwards_max;
  JIGE_CHECK(!options.scores || !options.embeds, "a model of embeddings gives no scores");
  sizes.scores = options.scores;
  sizes.embeds = options.embeds;
  sizes.streamed_layers = options.streamed_layers;
  sizes.slot_count = options.slot_count;
  for (const int32_t layer : sizes.streamed_layers) {
    JIGE_DO(check_range("a layer that is streamed", layer, 0, config.layer_count - 1));
  }
  JIGE_CHECK(std::ranges::is_sorted(sizes.streamed_layers) &&
                 (sizes.streamed_layers.empty() || sizes.slot_count > 0),
             "layers that are streamed, in no order or without slots");
  sizes.layers = options.layers;
  if (!sizes.streamed_layers.empty() && !sizes.layers.is_whole(architecture)) {
    return fail(Code::kUnsupported,
                "layers that stream from the host do not go with layers elsewhere");
  }
  sizes.adapters = adapter_sizes(adapters, sizes.compute);
  JIGE_DO(add_rooms(options, architecture, sizes));
  return sizes;
}

Result<InferenceSizes> borrowed_sizes(const InferenceOptions& options,
                                      const Architecture& architecture,
                                      const WeightsOptions& weights) {
  JIGE_CHECK(!options.embeds && options.adapters.empty() && options.adapter_rooms == 0 &&
                 options.streamed_layers.empty(),
             "weights that are lent have their own head, adapters and place");
  if (architecture.config().latent.rank > 0) {
    return fail(Code::kUnsupported,
                "this {} model keeps latents in its cache, and reads them by products that are "
                "packed in another way while it is trained: it cannot draw then",
                formats::family_name(architecture.config().family));
  }
  InferenceOptions given = options;
  given.compute = weights.compute;
  given.format = weights.format;
  JIGE_TRY(const InferenceSizes sizes,
           inference_sizes_with({}, given, architecture, weights.table_dtype));
  // The table of positions is lent, too.
  JIGE_DO(check_range("the context in tokens", sizes.context_max, 1, weights.position_count));
  return sizes;
}

Result<InferenceSizes> inference_sizes(const InferenceOptions& options,
                                       const Architecture& architecture,
                                       const formats::TensorFolder& files) {
  JIGE_TRY(const std::vector<Adapter> adapters, open_adapters(options.adapters, architecture));
  JIGE_TRY(const DType table_dtype, stored_table_dtype(architecture, files));
  return inference_sizes_with(adapters, options, architecture, table_dtype);
}

}  // namespace jige::model
