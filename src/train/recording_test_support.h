// For tests against recordings of PyTorch under tests/fixtures.
//
// Threads: the test's.
#pragma once

#include <cstdint>
#include <string>

#include "model/weights.h"

namespace jige::train {

inline const std::string kFixtures = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/";

// Values as files hold them: GPT-2 stores matrices the other way round.
inline float stored_value(const model::NamedParam& param, const TensorView& stored, int64_t row,
                          int64_t column) {
  const int64_t index =
      param.spec->transposed ? column * stored.columns() + row : row * stored.columns() + column;
  return stored.as<float>()[index];
}

}  // namespace jige::train
