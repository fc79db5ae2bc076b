// Products whose parts read and give numbers within bounds (projection.h).
#include <string>

#include "base/check.h"
#include "model/projection.h"
#include "ops/clamp.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace jige::model {
namespace {

constexpr const char* kBounds[] = {"input_min", "input_max", "output_min", "output_max"};

// Of the module around a part.
std::string bound_name(const std::string& part, const char* bound) {
  return part.substr(0, part.rfind('.') + 1) + bound;
}

}  // namespace

void Projection::add_bounds(std::vector<ParamSpec>& params) {
  JIGE_CHECK(!adapted() && scales_.empty() && !options_.bias, "{} has bounds and more",
             options_.parts[0].name);
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].bounds = params.size();
    for (const char* bound : kBounds) {
      params.push_back({.name = bound_name(options_.parts[i].name, bound),
                        .shape = Shape{1},
                        .init = InitKind::kZero,
                        .fixed = true,
                        .as_scalar = true});
    }
  }
}

Status Projection::check_bounds(const BlockWeights& weights) const {
  if (!options_.bounded) return {};
  const auto bound = [&](size_t part, size_t i) {
    return *weights.params[parts_[part].bounds + i].value.as<float>();
  };
  for (size_t part = 1; part < parts_.size(); ++part) {
    if (bound(part, 0) == bound(0, 0) && bound(part, 1) == bound(0, 1)) continue;
    return fail(Code::kUnsupported,
                "\"{}\" and its like are [{}, {}], those of \"{}\" [{}, {}]; bounds of what "
                "several products read must be the same",
                bound_name(options_.parts[part].name, kBounds[0]), bound(part, 0), bound(part, 1),
                options_.parts[0].name, bound(0, 0), bound(0, 1));
  }
  return {};
}

void Projection::forward_bounded(Stream& stream, const BlockWeights& weights, DType compute,
                                 const Forward& args) const {
  JIGE_CHECK(!args.adapters && !args.addend, "{} has bounds and more", options_.parts[0].name);
  const auto hold = [&](const TensorView& rows, size_t first) {
    ops::clamp(stream, rows, weights.params[first].value, weights.params[first + 1].value);
  };
  if (args.norm) ops::rms_norm_forward(stream, *args.norm);
  hold(args.src, parts_.front().bounds);
  ops::linear_forward(stream, {.dst = args.dst,
                               .src = args.src,
                               .weight = whole_view(weights, compute, ops::PackUse::kForward),
                               .past_caches = args.past_caches,
                               .strip = weights.strip});
  for (const Part& part : parts_) {
    hold(args.dst.column_range(part.row_begin, part.row_begin + part.rows), part.bounds + 2);
  }
}

}  // namespace jige::model
