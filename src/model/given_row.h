// GivenRow: what stands in a row in place of its token's embedding, such as a row of an image, for
// inference and training alike; and what comes with images besides.
//
//   put_given_rows()   in place of what the embedding gave
//   add_deep_rows()    behind the first layers
//   seen_spans()       rows that see one another, among rows that look back
//   PlaceAngles        rows that turn by the places of images (image_places.h)
//
// Threads: free functions, asynchronous on the stream they are given; values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "model/context_split.h"
#include "model/image_places.h"
#include "ops/attention.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::model {

// As many numbers as the residual stream has, in host memory that stays until the work is done.
struct GivenRow {
  int32_t row = 0;
  const float* values = nullptr;
  // What is added to the row behind the first layers, one of them after the other: so many rows,
  // each so many numbers behind the one before. Not where layers are elsewhere, or on a GPU.
  const float* deep = nullptr;
  int64_t deep_stride = 0;
  int32_t deep_count = 0;
};

// Puts given rows, ascending, where they belong among rows of dst, whose first is `row_begin`; dst
// is what they have numbers for, of rows that may be wider.
void put_given_rows(Stream& stream, std::span<const GivenRow> given, const TensorView& dst,
                    int64_t row_begin);
// Adds what is added to them behind a layer, likewise.
void add_deep_rows(Stream& stream, std::span<const GivenRow> given, const TensorView& dst,
                   int64_t row_begin, int32_t layer);

// The rows of sequences as spans of those that see one another and of others; empty where none do.
// REQUIRES: runs ascend, each inside of a sequence.
void seen_spans(std::span<const ops::SequenceSpan> sequences, std::span<const RowRange> mutual,
                std::vector<ops::SequenceSpan>& seen);

// Whether such rows do so in this layer: in Gemma 4 only where a layer has a window.
bool rows_see_one_another(const formats::ModelConfig& config, int64_t layer);

// Whether attention of such a model has a way for rows that see one another, on a CPU that has all
// layers; kUnsupported.
Status check_mutual_attention(const formats::ModelConfig& config);

// The angles of rows in place of a table's (Batch::angles).
class PlaceAngles {
 public:
  // Fails with kUnsupported on models of which no one table has the angles of all heads, with
  // kInvalidArgument where a head has other pairs.
  static Status check(const formats::ModelConfig& config, const PairPlaces& pairs);

  PlaceAngles() = default;
  // REQUIRES: check().
  explicit PlaceAngles(PairPlaces pairs) : pairs_(std::move(pairs)) {}

  // Whether nothing turns by places.
  bool empty() const { return pairs_.empty(); }
  int64_t columns() const { return 2 * std::ssize(pairs_); }
  // Writes the angles of a token there, columns() numbers. REQUIRES: the table has the place.
  void write(const TensorView& rope_table, const TokenPlace& place, float* to) const;

 private:
  PairPlaces pairs_;
};

}  // namespace jige::model
