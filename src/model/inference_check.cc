// The checks of what an InferenceModel is asked for.
#include "model/batch_limits.h"
#include "model/inference.h"
#include "tensor/cuda_device.h"

namespace jige::model {

Status InferenceModel::check_sequence(const ops::SequenceSpan& sequence, int64_t row_begin) const {
  if (sequence.row_begin != row_begin || sequence.row_count < 1) {
    return fail(Code::kInvalidArgument, "a sequence has rows {} + {} where row {} follows",
                sequence.row_begin, sequence.row_count, row_begin);
  }
  const int64_t end = int64_t{sequence.context_count} + sequence.row_count;
  if (sequence.context_count < 0 || end > sizes_.context_max) {
    return fail(Code::kInvalidArgument, "a sequence of {} tokens is longer than the context of {}",
                end, sizes_.context_max);
  }
  if (sizes_.whole_texts && sequence.context_count > 0) {
    return fail(Code::kInvalidArgument,
                "a sequence goes on behind {} tokens, but those of this model see what follows "
                "them: it must run whole",
                sequence.context_count);
  }
  if (sequence.second_begin < 0 || (sequence.second_begin < end && config().token_types < 2)) {
    return fail(Code::kInvalidArgument,
                "a sequence has tokens of the second type from {} on, and the model has {} type(s)",
                sequence.second_begin, config().token_types);
  }
  if (!sequence.blocks) return fail(Code::kInvalidArgument, "a sequence has no cache blocks");
  for (int64_t i = 0; i < kv_blocks_for(end); ++i) {
    const int32_t block = sequence.blocks[i];
    JIGE_DO(check_range("a cache block", block, 0, sizes_.kv_block_count - 1));
  }
  return {};
}

Status InferenceModel::check_states(std::span<const ops::SequenceSpan> sequences) const {
  if (sizes_.state_count == 0) return {};
  std::vector<uint8_t> taken(static_cast<size_t>(sizes_.state_count), 0);
  const auto take = [&](int32_t state) -> Status {
    JIGE_DO(check_range("a state", state, 0, sizes_.state_count - 1));
    uint8_t& mine = taken[static_cast<size_t>(state)];
    if (mine != 0) return fail(Code::kInvalidArgument, "two sequences have state {}", state);
    mine = 1;
    return {};
  };
  for (const ops::SequenceSpan& sequence : sequences) {
    JIGE_DO(take(sequence.state));
    if (sequence.has_spare()) {
      if (beyond_) {
        return fail(Code::kUnsupported,
                    "states behind some rows of a sequence are not kept where "
                    "other machines hold layers");
      }
      JIGE_DO(take(sequence.spare));
      JIGE_DO(
          check_range("the rows before a spare state", sequence.spare_rows, 1, sequence.row_count));
    }
    const int64_t stands = state_tokens_[static_cast<size_t>(sequence.state)];
    if (sequence.context_count == 0 || sequence.context_count == stands) continue;
    return fail(Code::kInvalidArgument,
                "a sequence goes on behind {} tokens, but its state {} stands behind {}",
                sequence.context_count, sequence.state, stands);
  }
  return {};
}

Status InferenceModel::check(const InferenceBatch& batch) const {
  const auto row_count = static_cast<int64_t>(batch.tokens.size());
  JIGE_DO(check_range("the tokens of a batch", row_count, 1, sizes_.batch_tokens_max));
  JIGE_DO(check_logit_rows(batch.logit_rows, row_count));
  for (const int32_t token : batch.tokens) {
    JIGE_DO(check_range("a token id", token, 0, config().vocab_size - 1));
  }
  int64_t row = 0;
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    JIGE_DO(check_sequence(sequence, row));
    row += sequence.row_count;
  }
  if (row != row_count) {
    return fail(Code::kInvalidArgument, "{} tokens, but sequences of {} rows", row_count, row);
  }
  JIGE_DO(check_states(batch.sequences));
  JIGE_DO(check_given(batch.given, row_count));
  JIGE_DO(check_mutual(batch));
  JIGE_DO(check_places(batch));
  return check_adapters(batch);
}

Status InferenceModel::check_given(std::span<const GivenRow> given, int64_t row_count) const {
  if (given.empty()) return {};
  if (!takes_given_rows()) {
    return fail(Code::kUnsupported,
                "rows are given in place of tokens, but layers of a {} read more of a token than "
                "its embedding",
                formats::family_name(config().family));
  }
  int64_t least = 0;
  for (const GivenRow& one : given) {
    JIGE_DO(check_range("a given row", one.row, least, row_count - 1));
    if (!one.values) return fail(Code::kInvalidArgument, "a given row has no values");
    JIGE_DO(check_range("rows behind layers", one.deep_count, 0, config().layer_count));
    if (one.deep_count > 0 && (!turns_by_places() || !one.deep)) {
      return fail(Code::kUnsupported,
                  "a given row has {} rows behind layers, which none takes here", one.deep_count);
    }
    least = one.row + 1;
  }
  return {};
}

Status InferenceModel::check_mutual_rows() const {
  const auto refused = [](std::string_view what) {
    return fail(Code::kUnsupported, "rows that see one another are not supported {}", what);
  };
  if (on_cuda(*stream_)) {
    return refused("on a GPU; run the model on a CPU (--device cpu)");
  }
  if (beyond_)
    return refused("where other machines hold layers; run the model without --layers-on");
  return check_mutual_attention(config());
}

Status InferenceModel::check_mutual(const InferenceBatch& batch) const {
  if (batch.mutual.empty()) return {};
  JIGE_DO(check_mutual_rows());
  int64_t least = 0;
  auto sequence = batch.sequences.begin();
  for (const RowRange& run : batch.mutual) {
    JIGE_DO(check_range("the first of rows that see one another", run.begin, least,
                        std::ssize(batch.tokens) - 1));
    while (run.begin >= int64_t{sequence->row_begin} + sequence->row_count) ++sequence;
    JIGE_DO(check_range("the end of rows that see one another", run.end, run.begin + 1,
                        int64_t{sequence->row_begin} + sequence->row_count));
    least = run.end;
  }
  return {};
}

Status InferenceModel::check_adapters(const InferenceBatch& batch) const {
  if (batch.adapters.empty()) return {};
  if (batch.adapters.size() != batch.sequences.size()) {
    return fail(Code::kInvalidArgument, "{} adapters for {} sequences", batch.adapters.size(),
                batch.sequences.size());
  }
  for (const int32_t adapter : batch.adapters) {
    if (adapter == kNoAdapter || has_adapter(adapter)) continue;
    return fail(Code::kInvalidArgument, "an adapter is {}; no such number is loaded", adapter);
  }
  return {};
}

Status InferenceModel::check_logit_rows(std::span<const int32_t> rows, int64_t row_count) const {
  JIGE_DO(check_range("the rows of logits", std::ssize(rows), 0, sizes_.logit_rows_max));
  for (const int32_t row : rows) JIGE_DO(check_range("a row of logits", row, 0, row_count - 1));
  return {};
}

Status InferenceModel::check_hidden_rows(std::span<const int32_t> rows) const {
  if (rows.empty() || !hidden_) {
    return fail(Code::kInvalidArgument, "{} rows of logits are wanted of {}", rows.size(),
                hidden_ ? "a forward" : "no forward");
  }
  return check_logit_rows(rows, hidden_.rows());
}

}  // namespace jige::model
