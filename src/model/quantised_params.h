// Parameters that a folder's files hold in few bits (formats/quantised_matrix.h), one at a time as
// numbers, in memory of their own.
//
// Threads: free functions.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/threads.h"
#include "formats/model_config.h"
#include "formats/quantised_matrix.h"
#include "formats/tensor_folder.h"
#include "model/block.h"
#include "model/load_buffer.h"

namespace jige::model {

// The parameter's matrix as the files hold it in few bits, of the parameter's shape; none: they
// hold it in floating point. REQUIRES: it is in no stacked tensor. Fails as QuantisedMatrix::open,
// with kCorrupt where config.json has it in floating point or in another shape, with kUnsupported
// on numbers that still have to be rounded. REQUIRES: the files outlive it.
Result<std::optional<formats::QuantisedMatrix>> find_quantised(const formats::ModelConfig& config,
                                                               const formats::TensorFolder& files,
                                                               const ParamSpec& spec);

// The same by the name of a module, whatever its shape.
Result<std::optional<formats::QuantisedMatrix>> open_quantised(const formats::ModelConfig& config,
                                                               const formats::TensorFolder& files,
                                                               const std::string& module);

// All its numbers as f32, bf16 or f16 in the buffer, decoded by the team. Fails with kExhausted,
// naming the folder.
Result<TensorView> read_quantised(const formats::QuantisedMatrix& matrix, const std::string& folder,
                                  DType dtype, ThreadTeam& team, LoadBuffer& buffer);

// The scales of the blocks that quantised weights are packed in (ops::kWeightBlock), f16 [N, blocks
// of a row] in the buffer, zero where the folder has none that is one of f16: with them pack_weight
// keeps the folder's numbers. Fails with kExhausted, naming the folder.
Result<TensorView> read_block_scales(const formats::QuantisedMatrix& matrix,
                                     const std::string& folder, ThreadTeam& team,
                                     LoadBuffer& buffer);

}  // namespace jige::model
