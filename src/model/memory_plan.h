// Exact memory of running and training a model, from the same functions that size the buffers.
//
// A training step on one device, block after block, holds:
//   weights      ModelWeights (masters, gradients, packed forms, rope table, strip) and two AdamW
//                moments
//   streams      the residual stream in front of every block but the first, [T, D] f32 each
//   saved        of every block, F to W
//   gradient     of the residual stream, one [T, D] f32 (a block's grad_src may be its grad_dst)
//   pending      of one block at a time, X to W
//   workspace    the largest of any task
//   batch        tokens, positions, targets, loss weights and losses
// for T tokens of a micro-batch. Where each sequence of a micro-batch of R tokens is divided among
// N ranks (context_split.h), T is ContextSplit::rows_max(R, N), there are N `pending`, as W of a
// block waits for its turn while X goes on, and
//   gathered     of the block that needs most: keys, values, queries of all R tokens
// is there besides. What follows training_buffers() takes just these bytes.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "model/adapter.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "ops/moments.h"
#include "tensor/device.h"

namespace jige::model {

// Sizes of the buffers of one micro-batch of up to so many tokens, each of whose sequences so many
// ranks have together.
struct TrainingBuffers {
  int64_t row_count = 0;             // T
  std::vector<int64_t> saved_bytes;  // by node
  int64_t stream_count = 0;          // node_count - 1
  int64_t stream_bytes = 0;          // of one [T, D] f32; the gradient takes one more
  int64_t pending_count = 1;
  int64_t pending_bytes = 0;    // of one
  int64_t gathered_bytes = 0;   // where sequences are divided
  int64_t workspace_bytes = 0;  // of F, X and W; an evaluation's F is given the saved buffers too
  int64_t batch_bytes = 0;
  // Every buffer rounded as an arena rounds it.
  int64_t total_bytes() const;
};
TrainingBuffers training_buffers(const Architecture& architecture, DType compute,
                                 int64_t token_count, int context_ranks = 1);

// What the scratch of each of so many threads holds once T tokens were trained on.
int64_t thread_scratch_bytes(const Architecture& architecture, DType compute, int64_t token_count,
                             int threads);

struct TrainingMemory {
  WeightsMemory weights;
  int64_t moments_bytes = 0;  // two tensors for every trainable parameter, or a rank's share
  int64_t masters_bytes = 0;  // of a rank's share, apart from the values
  TrainingBuffers buffers;
  int64_t images_bytes = 0;  // of what reads images, where the data has any; not of this plan
  int64_t total_bytes() const {
    return weights.total_bytes() + moments_bytes + masters_bytes + buffers.total_bytes() +
           images_bytes;
  }
};
TrainingMemory training_memory(const Architecture& architecture, const WeightsOptions& options,
                               int64_t micro_batch_tokens,
                               ops::MomentFormat moments = ops::MomentFormat::kF32,
                               int context_ranks = 1);

// Rows of a forward of an InferenceModel: what is asked for, and of a model that looks ahead, whose
// texts run whole, as many as a text may have.
int64_t forward_rows(const formats::ModelConfig& config, int64_t batch_tokens, int64_t context);

// What an InferenceModel (inference.h) is built with.
struct InferenceSizes {
  DeviceKind device = DeviceKind::kCpu;  // that runs it
  DType compute = DType::kBF16;
  DType table_dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;
  ops::WeightFormat format = ops::WeightFormat::kCompute;  // of the matrices
  int64_t context_max = 0;                                 // positions a sequence may have
  int64_t kv_block_count = 0;                              // of 16 tokens
  int64_t state_count = 0;       // sequences that may have states; 0: no layer is recurrent
  int64_t batch_tokens_max = 0;  // rows of one forward
  int64_t logit_rows_max = 0;    // rows of logits of one forward
  int64_t forwards_max = 1;      // under way at once; more where layers are computed elsewhere
  bool scores = false;           // whether losses are asked for: workspace for a chunk of logits
  bool whole_texts = false;      // a text is one forward's: the model looks ahead
  bool embeds = false;           // normed rows are given in place of logits: no head is held
  AdapterSizes adapters;         // that rows may ask for
  std::vector<int32_t> streamed_layers = {};  // WeightsOptions
  int64_t slot_count = 0;                     // for these
  LayerRange layers;                          // that are held; what follows counts these alone
};

struct InferenceMemory {
  WeightsMemory weights;
  int64_t kv_bytes = 0;  // the whole cache
  int64_t kv_bytes_per_token = 0;
  int64_t states_bytes = 0;             // of recurrent layers, all sequences'
  std::vector<int64_t> adapters_bytes;  // of each
  // Residual streams, workspace, batch, gathered rows, what adapters compute with.
  int64_t activations_bytes = 0;
  int64_t logits_bytes = 0;  // or of the normed rows that an embedding model gives
  // Of the host, pinned, besides: rows on their way, where a GPU has some of the layers.
  int64_t host_rows_bytes = 0;
  int64_t adapters_total_bytes() const {
    return std::accumulate(adapters_bytes.begin(), adapters_bytes.end(), int64_t{0});
  }
  int64_t total_bytes() const {
    return weights.total_bytes() + adapters_total_bytes() + kv_bytes + states_bytes +
           activations_bytes + logits_bytes;
  }
};
InferenceMemory inference_memory(const Architecture& architecture, const InferenceSizes& sizes);

// The buffers of an InferenceModel besides weights, cache and logits.
struct InferenceBuffers {
  int64_t stream_bytes = 0;  // of one [T, D] f32
  int64_t stream_count = 2;  // and, on a CPU, one for each forward under way, where several may be
  int64_t host_stream_count = 0;  // pinned: of each forward under way, where a GPU has some layers
  int64_t workspace_bytes = 0;
  int64_t gathered_bytes = 0;  // rows of the residual stream whose logits are wanted
  int64_t batch_bytes = 0;
  int64_t adapter_product_bytes = 0;  // StepAdapters::product and scratch; 0 without adapters
  int64_t adapter_scratch_bytes = 0;
};
InferenceBuffers inference_buffers(const Architecture& architecture, const InferenceSizes& sizes);

// Of what ops::draw() says of tokens, in f32.
Shape draw_scores_shape(const InferenceSizes& sizes);

// Columns of what an inference model gives of a row: the vocabulary, or the width.
int64_t result_columns(const Architecture& architecture, const InferenceSizes& sizes);

// Weights options of an inference model of these sizes.
WeightsOptions inference_weights_options(const InferenceSizes& sizes);

}  // namespace jige::model
