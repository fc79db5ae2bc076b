#include "serve/score_memory.h"

#include <algorithm>

#include "model/batch_limits.h"
#include "model/inference_folder.h"
#include "model/memory_plan.h"

namespace jige::serve {
namespace {

// Batches of tokens that the cache holds at least: contexts of which endings are run, endings that
// wait for their turn, and those blocks that are not full.
constexpr int64_t kBatchesInCache = 4;
constexpr int64_t kStatesOfScores = 16;
constexpr int64_t kRowsOfReplies = 32;

}  // namespace

Result<model::InferenceOptions> options_for_scores(const std::string& folder,
                                                   model::InferenceOptions options,
                                                   DeviceKind device, const LayerBudget& budget) {
  JIGE_TRY(const model::InferenceFolder opened,
           model::open_inference_folder(folder, options.embeds, device));
  const auto& [architecture, files] = opened;
  JIGE_TRY(model::InferenceSizes least, model::inference_sizes(options, *architecture, files));
  const int64_t limit_bytes = std::min(options.memory_bytes_max, budget.device_bytes);
  if (budget.resident_layers) {
    const int64_t layer_count = opened.config().layer_count;
    stream_layers(*architecture, std::min(layer_count, *budget.resident_layers), least);
  } else if (budget.may_stream() &&
             model::inference_memory(*architecture, least).total_bytes() > limit_bytes) {
    stream_layers(*architecture, 0, least);
  }
  const auto fits = [&](int64_t blocks, int64_t states, int64_t rows) {
    model::InferenceSizes sizes = least;
    sizes.kv_block_count = blocks;
    sizes.state_count = states;
    sizes.logit_rows_max = rows;
    return model::inference_memory(*architecture, sizes).total_bytes() <= limit_bytes;
  };
  const int64_t batch = model::kv_blocks_for(least.batch_tokens_max);
  int64_t rows = std::min(least.batch_tokens_max, std::max(least.logit_rows_max, kRowsOfReplies));
  while (rows > least.logit_rows_max && !fits(least.kv_block_count, least.state_count, rows))
    --rows;
  int64_t states = least.state_count > 0 ? std::max(least.state_count, kStatesOfScores) : 0;
  while (states > least.state_count && !fits(least.kv_block_count, states, rows)) --states;
  int64_t blocks = std::max(least.kv_block_count + batch, kBatchesInCache * batch);
  while (blocks > least.kv_block_count && !fits(blocks, states, rows)) --blocks;
  options.kv_block_count = blocks;
  options.state_count = states;
  options.logit_rows_max = rows;
  return options;
}

}  // namespace jige::serve
