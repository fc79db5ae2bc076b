// The tensors of a GGUF file as those of a Hugging Face folder: names, order of rows, types.
//
//   token_embd.weight       model.embed_tokens.weight
//   blk.3.attn_q.weight     model.layers.3.self_attn.q_proj.weight
//
// llama stores the rows of query and key projections in pairs that rotary embedding turns together,
// row 2 j + h of a head for row h d/2 + j of the folder; they are put back. GPT-2's matrices are
// [in, out] in its folders and [out, in] here; they are transposed.
// Threads: free functions; sources are called from one thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/model_config.h"
#include "formats/safetensors_writer.h"

namespace jige::formats {

struct GgufWeightOptions {
  // Of all tensors; without it F32, F16 and BF16 stay as they are and others become bf16, but F32
  // becomes the type of the token table where that has all its values.
  std::optional<DType> dtype;
  // Called with the bytes of the file that were read since the last call; an error ends the work.
  std::function<Status(uint64_t bytes)> on_read = nullptr;
};

// A source for every tensor of the model, in its order. The file must outlive them. Fails with
// kCorrupt on missing tensors and shapes that contradict `config`, with kUnsupported on types that
// Jige does not read and tensors that no model of the family has, each by name. A source fails with
// kUnsupported where a value does not fit f16.
Result<std::vector<TensorSource>> gguf_sources(const GgufFile& file, const ModelConfig& config,
                                               const GgufWeightOptions& options);

}  // namespace jige::formats
