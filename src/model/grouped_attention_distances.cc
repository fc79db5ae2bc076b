// GroupedAttention whose scores depend on the distance of query and key.
#include <algorithm>

#include "model/grouped_attention.h"
#include "ops/distance_scores.h"
#include "ops/elementwise.h"

namespace jige::model {

void GroupedAttention::add_distances(const formats::ModelConfig& config,
                                     const GroupedAttentionNames& names,
                                     const GroupedAttentionOptions& options,
                                     std::vector<ParamSpec>& params) {
  const auto add_table = [&](const std::string& name, const Shape& shape) {
    params.push_back({.name = name + ".weight", .shape = shape, .whole = true});
    return params.size() - 1;
  };
  if (config.distance_buckets > 0) {
    distances_ = add_table(names.distances, Shape{config.distance_buckets, heads_});
  }
  const formats::DistanceRowsConfig& rows = config.distance_rows;
  if (rows.side == 0) return;
  DistanceRows& made = rows_.emplace();
  made.table = {.side = rows.side, .widens = rows.widens, .reach = rows.reach};
  made.for_queries = rows.for_queries;
  made.for_keys = rows.for_keys;
  made.param = add_table(names.distance_rows.table, Shape{2 * rows.side, config.hidden_size});
  if (rows.norm) {
    made.norm.emplace(config, names.distance_rows.norm, config.hidden_size, config.norm_bias,
                      params);
  }
  if (!rows.own_projections) return;
  std::vector<ProjectionOptions::Part> parts;
  if (rows.for_keys) parts.push_back({names.distance_rows.for_keys, q_columns()});
  if (rows.for_queries) parts.push_back({names.distance_rows.for_queries, q_columns()});
  made.projection.emplace(ProjectionOptions{.parts = std::move(parts),
                                            .inputs = config.hidden_size,
                                            .bias = config.qkv_bias,
                                            .device = options.device},
                          params);
}

void GroupedAttention::place_distances(Placement& at, int64_t token_count, DType compute,
                                       Activations& views) const {
  if (distances_) {
    views.distances = at.take(DType::kF32, Shape{heads_, ops::distance_count(token_count)});
  }
  if (!rows_ || token_count == 0) return;
  const int64_t rows = ops::distance_rows_of(rows_->table, token_count).count();
  const Projection& projection = rows_->projection ? *rows_->projection : qkv_;
  views.rows = at.take(compute, Shape{rows, projection.inputs()});
  views.projected = at.take(compute, Shape{rows, projection.outputs()});
  views.row_of = at.take(DType::kI32, Shape{2 * token_count - 1});
}

double GroupedAttention::score_products() const {
  return 1.0 + (rows_ && rows_->for_queries ? 1.0 : 0.0) + (rows_ && rows_->for_keys ? 1.0 : 0.0);
}

void GroupedAttention::set_distances(Stream& stream, const BlockWeights& weights,
                                     const Batch& batch, DType compute, const Activations& views,
                                     ops::AttentionShape& own) const {
  int64_t tokens = 0;
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    tokens = std::max<int64_t>(tokens, sequence.row_count);
  }
  if (tokens == 0) return;
  if (views.distances) {
    const TensorView scores = TensorView::of(views.distances.data, DType::kF32,
                                             Shape{heads_, ops::distance_count(tokens)});
    ops::distance_scores(stream, scores, weights.params[*distances_].value);
    own.distances = scores.as<float>() + tokens - 1;
    own.distance_stride = scores.columns();
  }
  if (views.row_of) set_distance_rows(stream, weights, tokens, compute, views, own);
}

void GroupedAttention::set_distance_rows(Stream& stream, const BlockWeights& weights,
                                         int64_t tokens, DType compute, const Activations& views,
                                         ops::AttentionShape& own) const {
  const ops::DistanceRowRange range = ops::distance_rows_of(rows_->table, tokens);
  const TensorView table = weights.params[rows_->param].value.row_range(range.first, range.end);
  const TensorView rows = views.rows.row_range(0, range.count());
  const TensorView projected = views.projected.row_range(0, range.count());
  if (rows_->norm) {
    rows_->norm->forward(stream, weights, rows, table, {});
  } else {
    ops::scale(stream, rows, table, 1.0f);
  }
  const Projection& projection = rows_->projection ? *rows_->projection : qkv_;
  projection.forward(stream, weights, compute, {.dst = projected, .src = rows});
  const TensorView row_of = TensorView::of(views.row_of.data, DType::kI32, Shape{2 * tokens - 1});
  ops::distance_rows(stream, row_of, rows_->table);
  ops::AttentionDistanceTables& tables = own.distance_tables;
  tables.row_of = row_of.as<int32_t>() + tokens - 1;
  // As queries, then as keys, like the product of tokens.
  const int64_t keys_begin = rows_->projection && !rows_->for_keys ? 0 : q_columns();
  if (rows_->for_keys) tables.for_keys = projected.column_range(0, q_columns());
  if (rows_->for_queries) {
    tables.for_queries = projected.column_range(keys_begin, keys_begin + q_columns());
  }
}

}  // namespace jige::model
