// A tensor to be written that can be called off before its turn.
//
// Threads: the flag may be set from anywhere.
#pragma once

#include <atomic>
#include <utility>

#include "base/result.h"
#include "formats/safetensors_writer.h"

namespace jige::model {

// The same source; once the flag is set its turn fails with kCancelled. Null: never.
inline formats::TensorSource cancellable(formats::TensorSource source,
                                         const std::atomic<bool>* cancelled) {
  if (!cancelled) return source;
  source.produce = [produce = std::move(source.produce), cancelled,
                    name = source.name](const formats::RowSink& sink) -> Status {
    if (*cancelled) return fail(Code::kCancelled, "by a signal, before tensor {}", name);
    return produce(sink);
  };
  return source;
}

}  // namespace jige::model
