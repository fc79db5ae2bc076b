#include "model/context_support.h"

namespace jige::model {

Status check_context_support(const formats::ModelConfig& config, std::string_view flag) {
  const char* const has = config.experts.count > 0                     ? "experts"
                          : config.latent.rank > 0                     ? "latents"
                          : formats::recurrent_layer_count(config) > 0 ? "recurrent layers"
                          : config.attention_chunk > 0                 ? "chunks of attention"
                          : config.shared_kv_layers > 0                ? "shared keys and values"
                          : config.altup.streams > 1 || config.laurel_rank > 0 ? "several streams"
                          : config.layer_inputs.size > 0                       ? "inputs of layers"
                                                                               : nullptr;
  if (!has) return {};
  return fail(Code::kUnsupported,
              "{} divides sequences among ranks, and a {} model has {}, for which that is not "
              "supported yet: leave it out, and ranks share micro-batches",
              flag, formats::family_name(config.family), has);
}

}  // namespace jige::model
