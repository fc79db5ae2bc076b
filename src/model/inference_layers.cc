// The layers of a forward: all of them here, or a piece of the rows at a time where some are
// computed elsewhere; and the layers in the middle.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/inference.h"
#include "tensor/cuda_device.h"

namespace jige::model {
namespace {

// Rows [begin, end) of a batch, with sequences of their own.
Batch piece_of(const Batch& batch, int64_t begin, int64_t end) {
  Batch piece = batch;
  piece.tokens = batch.tokens.row_range(begin, end);
  piece.positions = batch.positions.row_range(begin, end);
  piece.first_row = begin;
  piece.sequences.clear();
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    const int64_t first = std::max<int64_t>(begin, sequence.row_begin);
    const int64_t last = std::min<int64_t>(end, sequence.row_begin + sequence.row_count);
    if (first >= last) continue;
    ops::SequenceSpan part = sequence;
    part.context_count += static_cast<int32_t>(first - sequence.row_begin);
    part.row_begin = static_cast<int32_t>(first - begin);
    part.row_count = static_cast<int32_t>(last - first);
    piece.sequences.push_back(part);
  }
  return piece;
}

}  // namespace

void InferenceModel::run_block(size_t node, const Batch& batch, const TensorView& src,
                               const TensorView& dst) {
  const bool streamed = layer_stream_ && layer_stream_->has(node);
  const BlockWeights& weights =
      streamed ? layer_stream_->use(*stream_, node) : weights_->block(node);
  architecture_->block(node).forward(context(node), weights, batch, src, dst, {});
  if (streamed) layer_stream_->done(*stream_, node);
}

const Tensor& InferenceModel::last_stream() const {
  return buffers_.stream[(sizes_.layers.node_end(*architecture_) - 1) % 2];
}

bool InferenceModel::takes_given_rows() const {
  return sizes_.layers.ends && config().altup.streams == 0;
}

TensorView InferenceModel::run_held(const Batch& batch, const Tensor& last, int64_t row_begin) {
  TensorView src;
  const size_t end = sizes_.layers.node_end(*architecture_);
  for (size_t node = 0; node < end; ++node) {
    const Tensor& stream = node + 1 == end ? last : buffers_.stream[node % 2];
    const TensorView dst = stream.view().row_range(row_begin, row_begin + batch.token_count());
    run_block(node, batch, src, dst);
    if (node > 0) add_deep_rows(*stream_, given_, dst, row_begin, static_cast<int32_t>(node) - 1);
    src = dst;
  }
  return src;
}

TensorView InferenceModel::rows_elsewhere(size_t number) {
  if (!host_streams_.empty()) {
    return TensorView::of(static_cast<float*>(host_streams_.at(number).data()), DType::kF32,
                          Shape{sizes_.batch_tokens_max, architecture_->stream_columns()});
  }
  // Others may begin before these rows are back.
  return buffers_.beyond.empty() ? last_stream().view() : buffers_.beyond[number].view();
}

InferenceModel::Piece InferenceModel::put_piece(const InferenceBatch& batch, const Forward& forward,
                                                int64_t begin, int64_t end) {
  const auto number = static_cast<size_t>(&forward - forwards_.data());
  const Tensor& last = buffers_.beyond.empty() ? last_stream() : buffers_.beyond[number];
  Piece piece{.sequences = {}, .rows = forward.rows.row_range(begin, end), .done = {}};
  stream_->run_repeated([&] {
    send_batch(batch);
    const Batch own = piece_of(batch_, begin, end);
    const TensorView done = run_held(own, last, begin);
    if (on_cuda(*stream_)) {
      stream_->copy(piece.rows.data, done.data, done.count() * 4, CopyKind::kDeviceToHost);
    }
    piece.sequences = own.sequences;
  });
  piece.done = stream_->record();
  return piece;
}

Status InferenceModel::start_piece(const Piece& piece) {
  piece.done.wait();
  JIGE_DO(beyond_->start(piece.sequences, piece.rows));
  ++piece_count_;
  return {};
}

Status InferenceModel::start_divided(const InferenceBatch& batch, Forward& forward) {
  JIGE_DO(beyond_->finish(0));  // nothing is begun where layers were lost before
  const auto number = static_cast<size_t>(&forward - forwards_.data());
  const int64_t row_count = std::ssize(batch.tokens);
  const int64_t step = std::clamp<int64_t>(beyond_->piece_rows(row_count), 1, row_count);
  forward.rows = rows_elsewhere(number).row_range(0, row_count);
  // While the host waits for a piece of a GPU and sends it, the next one is computed there.
  std::optional<Piece> before;
  for (int64_t begin = 0; begin < row_count; begin += step) {
    Piece piece = put_piece(batch, forward, begin, std::min(begin + step, row_count));
    if (before) JIGE_DO(start_piece(*before));
    before.reset();
    if (on_cuda(*stream_)) {
      before = std::move(piece);
    } else {
      JIGE_DO(start_piece(piece));
    }
  }
  if (before) JIGE_DO(start_piece(*before));
  forward.piece_end = piece_count_;
  return {};
}

TensorView InferenceModel::layer_rows(int64_t row_count) {
  JIGE_CHECK(!sizes_.layers.ends, "rows between layers of a whole model");
  const TensorView rows =
      host_streams_.empty()
          ? buffers_.stream[(sizes_.layers.node_begin() - 1) % 2].view()  // not what is written
          : rows_elsewhere(0);
  return rows.row_range(0, row_count);
}

Result<TensorView> InferenceModel::run_layers(std::span<const ops::SequenceSpan> sequences,
                                              const TensorView& rows, RowsMemory memory) {
  const bool on_gpu = on_cuda(*stream_);
  const std::vector<int32_t> tokens(static_cast<size_t>(rows.rows()), 0);  // nobody reads them
  const InferenceBatch batch{.tokens = tokens, .sequences = sequences, .logit_rows = {}};
  JIGE_DO(check(batch));
  if (rows.columns() != architecture_->stream_columns()) {
    return fail(Code::kInvalidArgument, "rows of {} numbers, the model's have {}", rows.columns(),
                architecture_->stream_columns());
  }
  ++forward_count_;
  put_batch(batch);
  const int64_t bytes = rows.count() * 4;
  const bool in_place = !on_gpu || memory == RowsMemory::kPinned;
  const TensorView host = in_place ? rows : layer_rows(rows.rows());
  if (host.data != rows.data) std::memcpy(host.data, rows.data, static_cast<size_t>(bytes));
  TensorView done;
  stream_->run_repeated([&] {
    send_batch(batch);
    const size_t begin = sizes_.layers.node_begin();
    TensorView src = rows;
    if (on_gpu) {
      src = buffers_.stream[(begin - 1) % 2].view().row_range(0, rows.rows());
      stream_->copy(src.data, host.data, bytes, CopyKind::kHostToDevice);
    }
    for (size_t node = begin; node < sizes_.layers.node_end(*architecture_); ++node) {
      const TensorView dst = buffers_.stream[node % 2].view().row_range(0, rows.rows());
      run_block(node, batch_, src, dst);
      src = dst;
    }
    if (on_gpu) stream_->copy(host.data, src.data, bytes, CopyKind::kDeviceToHost);
    done = on_gpu ? host : src;
  });
  stream_->record().wait();
  return done;
}

}  // namespace jige::model
