// What DoRA and biases of an adapter do to the columns of a product, worked out once when the
// adapter is loaded.
//
// With W [N, K] and b of the base, A, B, s, m and β of the adapter and b' in place of b, a row gets
//   y = f ∘ (W x + b + s B A x) + c      f = m / ‖W + s B A‖, the norm of each row
//   c = (1 - f) ∘ b + s β + (b' - b)     so that biases are not scaled, as in PEFT
// f is 1 without m; of a row of zeros, which gives nothing whatever it is multiplied with, it is 0.
// The numbers of W are those of the folder's files, in f32, also where the model runs in others.
// Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "model/adapter_tensors.h"
#include "model/block.h"
#include "tensor/cpu_device.h"

namespace jige::model {

// A base's parameters on the host, one at a time, in the order that they have here.
class BaseNumbers {
 public:
  // Files are opened, and threads begun, when first read. The configuration must outlive it.
  // `thread_count` as of CpuDevice.
  BaseNumbers(const formats::ModelConfig& config, std::string folder, int thread_count);
  // Fails as load_weights does.
  Result<std::vector<float>> read(const ParamSpec& spec);
  // Of threads that read. REQUIRES: something was read.
  ThreadTeam& team() { return device_->team(); }

 private:
  const formats::ModelConfig& config_;
  const std::string folder_;
  const int thread_count_;
  std::unique_ptr<CpuDevice> device_;
  std::optional<formats::TensorFolder> files_;
};

// By column; empty where all are 1, or 0.
struct ColumnChange {
  std::vector<float> factors, addends;
};

// A pair and what it adapts.
struct AdaptedPart {
  const AdapterPair& pair;
  const ParamSpec& weight;
  const ParamSpec* bias = nullptr;  // null: none
  float bias_scale = 1;             // of biases as they are packed
};
// Whether there are factors, or addends.
bool has_factors(const AdaptedPart& part);
bool has_addends(const AdaptedPart& part);
// Reads of the base what it needs. Fails as BaseNumbers::read. REQUIRES: check_adapter_pair().
Result<ColumnChange> column_change(BaseNumbers& base, const AdaptedPart& part);

// f for rows of W [rows, K], B [rows, r], A [r, K] and m. REQUIRES: sizes that agree.
std::vector<float> row_factors(ThreadTeam& team, const std::vector<float>& weight,
                               const std::vector<float>& a, const std::vector<float>& b,
                               const std::vector<float>& magnitude, float scale);

}  // namespace jige::model
