#include "model/experts_beside.h"

#include "ops/elementwise.h"

namespace jige::model {
namespace {

NormLayer norm_of_whole_name(const formats::ModelConfig& config, const std::string& name,
                             std::vector<ParamSpec>& params) {
  NormLayer norm(config, name, config.hidden_size, false, params);
  params.back().name = name;
  return norm;
}

}  // namespace

ExpertsBeside::ExpertsBeside(const formats::ModelConfig& config, const ExpertsBesideNames& names,
                             const ExpertNames& experts, double output_std, DeviceKind device,
                             std::vector<ParamSpec>& params)
    : width_(config.hidden_size),
      before_(config, names.before, width_, false, params),
      router_norm_(norm_of_whole_name(config, names.router, params)),
      dense_after_(config, names.dense_after, width_, false, params),
      sparse_after_(config, names.sparse_after, width_, false, params),
      experts_(config, experts, output_std, device, params) {}

ExpertsBeside::Saved ExpertsBeside::place_saved(Placement& at, int64_t token_count, DType compute,
                                                bool stats) const {
  Saved saved;
  saved.dense = at.take(compute, Shape{token_count, width_});
  saved.sparse = at.take(compute, Shape{token_count, width_});
  saved.experts = experts_.place_saved(at, token_count, compute);
  if (!stats) return saved;
  saved.before = before_.place_stats(at, token_count);
  saved.router = router_norm_.place_stats(at, token_count);
  saved.dense_after = dense_after_.place_stats(at, token_count);
  saved.sparse_after = sparse_after_.place_stats(at, token_count);
  return saved;
}

ExpertsBeside::Pending ExpertsBeside::place_pending(Placement& at, int64_t token_count,
                                                    DType compute) const {
  Pending pending;
  for (TensorView* rows : {&pending.sum, &pending.sparse, &pending.experts}) {
    *rows = at.take(compute, Shape{token_count, width_});
  }
  pending.router = at.take(DType::kF32, Shape{token_count, width_});
  pending.inside = experts_.place_pending(at, token_count, compute);
  return pending;
}

ExpertsBeside::Work ExpertsBeside::place_work(Placement& at, int64_t token_count, DType compute,
                                              bool training) const {
  Work work;
  work.rows = at.take(compute, Shape{token_count, width_});
  work.experts = experts_.place_work(at, token_count, compute, training);
  return work;
}

void ExpertsBeside::forward(Stream& stream, const BlockWeights& weights, DType compute,
                            const TensorView& dst, const TensorView& src, const Saved& saved,
                            const Work& work) const {
  before_.forward(stream, weights, work.rows, src, saved.before);
  router_norm_.forward(stream, weights, work.experts.router_rows, src, saved.router);
  experts_.forward(stream, weights, compute, {.dst = saved.sparse}, work.rows, saved.experts,
                   work.experts);
  dense_after_.forward(stream, weights, dst, saved.dense, saved.dense_after);
  sparse_after_.forward(stream, weights, work.rows, saved.sparse, saved.sparse_after);
  ops::add(stream, dst, dst, work.rows);
}

void ExpertsBeside::backward_norms(Stream& stream, const BlockWeights& weights,
                                   const TensorView& grad_dense, const Saved& saved,
                                   const Pending& pending) const {
  dense_after_.backward_input(stream, weights, grad_dense, pending.sum, saved.dense,
                              saved.dense_after, false);
  sparse_after_.backward_input(stream, weights, pending.sparse, pending.sum, saved.sparse,
                               saved.sparse_after, false);
}

void ExpertsBeside::backward_input(Stream& stream, const BlockWeights& weights, DType compute,
                                   const Batch& batch, const TensorView& grad_src,
                                   const TensorView& src, const Saved& saved,
                                   const Pending& pending, const Work& work) const {
  ExpertMlp::Work inside = work.experts;
  inside.grad_tokens = pending.router;
  experts_.backward_input(stream, weights, compute, batch, pending.experts, pending.sparse,
                          saved.experts, pending.inside, inside);
  before_.backward_input(stream, weights, grad_src, pending.experts, src, saved.before, true);
  router_norm_.backward_input(stream, weights, grad_src, pending.router, src, saved.router, true);
}

void ExpertsBeside::backward_weight(Stream& stream, const BlockWeights& weights, DType compute,
                                    const TensorView& src, GradientUse gradients,
                                    const Saved& saved, const Pending& pending,
                                    const Work& work) const {
  dense_after_.backward_weight(stream, weights, pending.sum, saved.dense, saved.dense_after);
  sparse_after_.backward_weight(stream, weights, pending.sum, saved.sparse, saved.sparse_after);
  before_.backward_weight(stream, weights, pending.experts, src, saved.before);
  router_norm_.backward_weight(stream, weights, pending.router, src, saved.router);
  if (!experts_.wants_gradient(weights)) return;
  before_.forward(stream, weights, work.rows, src, {});
  router_norm_.forward(stream, weights, work.experts.router_rows, src, {});
  experts_.backward_weight(stream, weights, compute, work.rows, pending.sparse, gradients,
                           saved.experts, pending.inside, work.experts);
}

}  // namespace jige::model
