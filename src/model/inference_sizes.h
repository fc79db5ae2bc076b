// What an InferenceModel is built with, from what was asked for.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/inference.h"

namespace jige::model {

// Of a model whose embedding tables are stored in `table_dtype`, with these adapters. Fails with
// kInvalidArgument on options out of range.
Result<InferenceSizes> inference_sizes_with(const std::vector<Adapter>& adapters,
                                            const InferenceOptions& options,
                                            const Architecture& architecture, DType table_dtype);

// Of one that borrows weights held in such a way (InferenceModel::borrow). Fails as above.
Result<InferenceSizes> borrowed_sizes(const InferenceOptions& options,
                                      const Architecture& architecture,
                                      const WeightsOptions& weights);

}  // namespace jige::model
