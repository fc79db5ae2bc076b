#include "train/batch_loader.h"

#include <algorithm>

#include "base/check.h"

namespace jige::train {

void BatchLoader::load(Stream& stream, const BatchRoom& room, const HostBatch& host,
                       const BatchTerms& terms, model::Batch& batch) {
  const auto count = static_cast<int64_t>(host.tokens.size());
  JIGE_CHECK(count <= room.tokens.rows(), "{} rows for a micro-batch of {}", count,
             room.tokens.rows());
  const auto upload = [&](const TensorView& target, const void* data) {
    const TensorView rows = target.row_range(0, count);
    if (count > 0) stream.copy(rows.data, data, count * 4, CopyKind::kHostToDevice);
    return rows;
  };
  host_floats_.assign(static_cast<size_t>(count), terms.loss_weight);
  batch.tokens = upload(room.tokens, host.tokens.data());
  batch.positions = upload(room.positions, host.positions.data());
  batch.targets = upload(room.targets, host.targets.data());
  batch.loss_weights = upload(room.loss_weights, host_floats_.data());
  batch.dropout = terms.dropout;
  batch.balance_weight = terms.balance_weight;
  batch.sequences.clear();
  int32_t row = 0;
  for (const int32_t rows : host.counts) {
    batch.sequences.push_back({.row_begin = row, .row_count = rows});
    row += rows;
  }
  JIGE_CHECK(row == count, "sequences cover {} of {} rows", row, count);
  batch.angles = host.angles;
  model::seen_spans(batch.sequences, host.mutual, batch.seen);
  stream.synchronize();
}

void BatchLoader::add_losses(Stream& stream, const TensorView& losses, ExactSum& sum) {
  sum.add(token_losses(stream, losses));
}

std::span<const float> BatchLoader::token_losses(Stream& stream, const TensorView& losses) {
  host_floats_.resize(static_cast<size_t>(losses.rows()));
  stream.copy(host_floats_.data(), losses.data, losses.rows() * 4, CopyKind::kDeviceToHost);
  stream.synchronize();
  return host_floats_;
}

std::vector<double> BatchLoader::sequence_losses(Stream& stream, const TensorView& losses,
                                                 const model::Batch& batch) {
  const std::span<const float> all = token_losses(stream, losses);
  std::vector<double> sums;
  for (const auto& sequence : batch.sequences) {
    ExactSum sum;
    sum.add(all.subspan(static_cast<size_t>(sequence.row_begin),
                        static_cast<size_t>(sequence.row_count)));
    sums.push_back(sum.value());
  }
  return sums;
}

void BatchLoader::weigh_sequences(Stream& stream, std::span<const float> weights,
                                  model::Batch& batch) {
  JIGE_CHECK(weights.size() == batch.sequences.size(), "{} weights for {} sequences",
             weights.size(), batch.sequences.size());
  host_floats_.resize(static_cast<size_t>(batch.token_count()));
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& rows = batch.sequences[i];
    std::fill_n(host_floats_.begin() + rows.row_begin, rows.row_count, weights[i]);
  }
  weigh_tokens(stream, host_floats_, batch);
}

void BatchLoader::weigh_tokens(Stream& stream, std::span<const float> weights,
                               model::Batch& batch) {
  JIGE_CHECK(std::ssize(weights) == batch.token_count(), "{} weights for {} rows", weights.size(),
             batch.token_count());
  stream.copy(batch.loss_weights.data, weights.data(), batch.token_count() * 4,
              CopyKind::kHostToDevice);
  stream.synchronize();
}

}  // namespace jige::train
