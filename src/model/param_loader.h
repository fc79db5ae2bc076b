// ParamLoader: parameters of a block from a folder's files, under any of the names and in any of
// the forms that files have for them, to the block's memory and its packed matrices.
//
//   JIGE_DO(check_params(config, block.params(), files));
//   ParamLoader loader(config, files, *stream, compute);
//   JIGE_DO(loader.load({.specs = block.params(), .weights = weights, .pack = …}));
//
// Invariant: what is read of a block at once are the matrices that files hold as numbers; those
// that are made out of other forms come one by one. Threads: one at a time.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"
#include "model/block.h"
#include "model/device_copies.h"
#include "model/load_buffer.h"

namespace jige::model {

// The name under which the files hold a parameter; kNotFound says what was looked for.
Result<std::string> find_name(const formats::TensorFolder& files, const ParamSpec& spec);

// The stored view of a parameter that files hold as numbers, in the shape that it has here. Fails
// with kNotFound, kCorrupt or kUnsupported where it has not the type and shape that it must have.
Result<TensorView> find_checked(const formats::TensorFolder& files, const ParamSpec& spec);

// Whether the files hold all of these in some form; adapters are passed over. Fails naming file,
// tensor, what is expected and what is there.
Status check_params(const formats::ModelConfig& config, std::span<const ParamSpec> specs,
                    const formats::TensorFolder& files);

// The path of the file that holds a tensor, for errors.
std::string file_of(const formats::TensorFolder& files, const std::string& name);

class ParamLoader {
 public:
  // All must outlive it. Of the configuration it reads how files hold matrices in few bits, which
  // are rounded to the compute type.
  ParamLoader(const formats::ModelConfig& config, const formats::TensorFolder& files,
              Stream& stream, DType compute);

  struct Target {
    std::span<const ParamSpec> specs;
    const BlockWeights& weights;                    // whose values and packed matrices are filled
    std::optional<size_t> given = {};               // a parameter whose value is there already
    std::function<void(const BlockWeights&)> pack;  // as Block::pack()
  };
  // Adapters are left alone. Fails as find_checked() does, and with kExhausted. REQUIRES:
  // check_params() of all of it.
  Status load(const Target& target);

 private:
  // What has to be made out of what is stored. Values are rounded once, to what is computed with.
  Result<Param> make(const ParamSpec& spec, bool has_value, ops::WeightFormat format);
  // One parameter by itself: all of a layer's matrices at once might not fit beside the model.
  Status load_alone(const Target& target, size_t index);
  void finish();
  // What is stored in the order that it has here, until finish().
  Result<TensorView> in_order(const ParamSpec& spec, TensorView stored);
  Result<TensorView> columns_in_order(const ParamSpec& spec, const TensorView& stored);
  Result<TensorView> reordered(const TensorView& stored, const StoredRows& order);
  Result<TensorView> host_memory(DType dtype, const Shape& shape);
  // What pack() reads: vectors as f32, matrices as they are.
  Result<TensorView> to_device(const TensorView& stored);

  const formats::ModelConfig& config_;
  const formats::TensorFolder& files_;
  Stream& stream_;
  DType compute_;
  ThreadTeam alone_{1};
  ThreadTeam& team_;  // decodes: the device's threads, where they are the host's
  DeviceCopies copies_;
  LoadBuffer buffer_;  // of what is loaded alone
  LoadBuffer scales_;  // of its blocks
  std::vector<LoadBuffer> host_;
};

}  // namespace jige::model
