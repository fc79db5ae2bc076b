// Names of the formats of weights: linear.h.
#include "ops/linear.h"

namespace jige::ops {

std::string_view weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kCompute:
      return "none";
    case WeightFormat::kQ8:
      return "q8";
    case WeightFormat::kQ4:
      return "q4";
    case WeightFormat::kMxfp4:
      break;
  }
  return "mxfp4";
}

}  // namespace jige::ops
