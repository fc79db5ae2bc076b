// One tensor on its way from a folder to a GGUF file.
//
// Internal to gguf_export.cc. Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/gguf_export.h"
#include "formats/gguf_params.h"
#include "formats/gguf_writer.h"
#include "tensor/view.h"

namespace jige::formats {

// A row of numbers as a type of GGUF files has it.
class GgufRowEncoder {
 public:
  // `name` is that of the tensor in the folder, for errors.
  GgufRowEncoder(const GgufTypeInfo& type, const GgufExportOptions& options, std::string name);

  const GgufTypeInfo& type() const { return *type_; }
  // REQUIRES: a whole number of blocks.
  size_t row_bytes(int64_t columns) const;
  // Fails with kUnsupported where a number does not fit f16.
  Status encode(std::span<const float> values, std::byte* blocks) const;

 private:
  const GgufTypeInfo* type_;
  GgufEncoder encoder_;
  std::string folder_;
  std::string name_;
};

using GgufOnWritten = std::function<Status(uint64_t bytes)>;

// A parameter whose rows are those of the folder in another order, or with other numbers.
class GgufTensorExport {
 public:
  GgufTensorExport(TensorView view, GgufParam param, GgufRowEncoder encoder,
                   GgufOnWritten on_written)
      : view_(view),
        param_(std::move(param)),
        encoder_(std::move(encoder)),
        on_written_(std::move(on_written)) {}

  std::vector<int64_t> dims() const;
  Status produce(const GgufSink& sink) const;

 private:
  bool turned() const { return param_.order == RowOrder::kTransposed; }
  float vector_value(int64_t column) const;
  float value(int64_t row, int64_t column) const;
  float changed(float value, int64_t row) const;

  TensorView view_;
  GgufParam param_;
  GgufRowEncoder encoder_;
  GgufOnWritten on_written_;
};

// One of the tensors that are made of a parameter. REQUIRES: stored.write is set; the view is
// contiguous.
Status write_made_gguf(const TensorView& view, const GgufStored& stored, GgufChange change,
                       const GgufRowEncoder& encoder, const GgufOnWritten& on_written,
                       const GgufSink& sink);

float first_number(const TensorView& view);

// Source `source` of `sources` whose rows stand in turns in blocks of MXFP4, codes [E, N, B, 16]
// and scales [E, N, B].
Status write_mxfp4_gguf(const TensorView& codes, const TensorView& scales, size_t source,
                        size_t sources, const GgufOnWritten& on_written, const GgufSink& sink);

}  // namespace jige::formats
