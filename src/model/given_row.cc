#include "model/given_row.h"

#include <algorithm>
#include <utility>

#include "model/rope_table.h"
#include "ops/elementwise.h"
#include "tensor/cuda_device.h"

namespace jige::model {

void put_given_rows(Stream& stream, std::span<const GivenRow> given, const TensorView& dst,
                    int64_t row_begin) {
  const int64_t width = dst.columns();
  for (size_t i = 0, count = 1; i < given.size(); i += count) {
    const int64_t row = given[i].row - row_begin;
    if (row < 0 || row >= dst.rows()) {
      count = 1;
      continue;
    }
    // Rows that follow one another, among all and in memory, go as one.
    const int64_t rows_left = dst.rows() - row;
    for (count = 1; i + count < given.size() && std::cmp_less(count, rows_left); ++count) {
      const GivenRow& next = given[i + count];
      const auto further = static_cast<int64_t>(count);
      if (next.row - row_begin != row + further || dst.row_stride != width) break;
      if (next.values != given[i].values + further * width) break;
    }
    const auto rows = static_cast<int64_t>(count);
    const int64_t bytes = rows * width * 4;
    const void* const values = given[i].values;
    const TensorView place = dst.row_range(row, row + rows);
    if (on_cuda(stream)) {
      stream.copy(place.data, as_cuda(stream).upload(values, bytes), bytes,
                  CopyKind::kDeviceToDevice);
    } else {
      stream.copy(place.data, values, bytes, CopyKind::kHostToDevice);
    }
  }
}

void add_deep_rows(Stream& stream, std::span<const GivenRow> given, const TensorView& dst,
                   int64_t row_begin, int32_t layer) {
  for (const GivenRow& one : given) {
    if (layer >= one.deep_count) continue;
    const int64_t row = one.row - row_begin;
    if (row < 0 || row >= dst.rows()) continue;
    const TensorView place = dst.row_range(row, row + 1);
    const TensorView values = TensorView::of(const_cast<float*>(one.deep) + layer * one.deep_stride,
                                             DType::kF32, place.shape);
    ops::add(stream, place, place, values);
  }
}

void seen_spans(std::span<const ops::SequenceSpan> sequences, std::span<const RowRange> mutual,
                std::vector<ops::SequenceSpan>& seen) {
  seen.clear();
  if (mutual.empty()) return;
  auto run = mutual.begin();
  for (const ops::SequenceSpan& sequence : sequences) {
    const int64_t end = int64_t{sequence.row_begin} + sequence.row_count;
    for (int64_t row = sequence.row_begin; row < end;) {
      const bool more = run != mutual.end() && run->begin < end;
      const bool inside = more && run->begin == row;
      ops::SequenceSpan span = sequence;
      span.row_begin = static_cast<int32_t>(row);
      span.row_count = static_cast<int32_t>((inside ? run->end : more ? run->begin : end) - row);
      span.context_count += span.row_begin - sequence.row_begin;
      span.mutual = inside;
      seen.push_back(span);
      row += span.row_count;
      if (inside) ++run;
    }
  }
}

bool rows_see_one_another(const formats::ModelConfig& config, int64_t layer) {
  return config.full_heads.head_dim == 0 || formats::has_window(config, layer);
}

Status check_mutual_attention(const formats::ModelConfig& config) {
  if (config.latent.rank == 0 && config.attention_chunk == 0 && !config.looks_ahead &&
      formats::recurrent_layer_count(config) == 0) {
    return {};
  }
  return fail(Code::kUnsupported,
              "rows that see one another are not supported by the attention of a {}",
              formats::family_name(config.family));
}

Status PlaceAngles::check(const formats::ModelConfig& config, const PairPlaces& pairs) {
  const TurnedColumns turned = turned_columns(config);
  if (config.latent.rank > 0 || turned.full == 0 || rope_columns(config) != turned.full) {
    return fail(Code::kUnsupported,
                "heads of a {} turn by the lines and columns of images, for which models with "
                "several tables of them, or none, have no way yet; run it on text alone",
                formats::family_name(config.family));
  }
  const bool known = std::ranges::all_of(pairs, [](uint8_t by) { return by < 3; });
  if (std::ssize(pairs) == turned.full / 2 && known) return {};
  return fail(Code::kInvalidArgument,
              "{} pairs of columns turn by time, rows and columns of images, and a head has {}",
              pairs.size(), turned.full / 2);
}

void PlaceAngles::write(const TensorView& rope_table, const TokenPlace& place, float* to) const {
  const auto half = std::ssize(pairs_);
  const float* rows[3] = {};
  for (size_t i = 0; i < place.size(); ++i) {
    rows[i] = rope_table.row_range(place[i], place[i] + 1).as<float>();
  }
  for (int64_t i = 0; i < 2 * half; ++i) {
    to[i] = rows[pairs_[static_cast<size_t>(i % half)]][i];
  }
}

}  // namespace jige::model
