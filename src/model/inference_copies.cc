// Copies of cache blocks and of states.
#include "model/batch_limits.h"
#include "model/inference.h"

namespace jige::model {

Status InferenceModel::copy_block(int32_t src, int32_t dst) {
  JIGE_DO(check_range("a cache block", src, 0, sizes_.kv_block_count - 1));
  JIGE_DO(check_range("a cache block", dst, 0, sizes_.kv_block_count - 1));
  ++forward_count_;
  if (src == dst) return {};
  if (beyond_) JIGE_DO(beyond_->copy_block(src, dst));
  for (size_t layer = 0; layer < buffers_.layers.size(); ++layer) {
    if (!buffers_.layers[layer].kv) continue;
    const int64_t bytes = cache_bytes(config(), static_cast<int64_t>(layer), sizes_.kv_dtype, 1);
    const TensorView view = buffers_.layers[layer].kv.view();
    stream_->copy(view.row_range(dst * bytes, (dst + 1) * bytes).data,
                  view.row_range(src * bytes, (src + 1) * bytes).data, bytes,
                  CopyKind::kDeviceToDevice);
  }
  return {};
}

Status InferenceModel::copy_state(int32_t src, int32_t dst) {
  JIGE_DO(check_range("a state", src, 0, sizes_.state_count - 1));
  JIGE_DO(check_range("a state", dst, 0, sizes_.state_count - 1));
  ++forward_count_;
  if (src == dst) return {};
  if (beyond_) JIGE_DO(beyond_->copy_state(src, dst));
  state_tokens_[static_cast<size_t>(dst)] = state_tokens_[static_cast<size_t>(src)];
  for (const LayerBuffers& layer : buffers_.layers) {
    for (const Tensor* states : {&layer.inputs, &layer.matrices}) {
      if (!*states) continue;
      const TensorView view = states->view();
      const TensorView to = view.row_range(dst, dst + 1);
      stream_->copy(to.data, view.row_range(src, src + 1).data,
                    dtype_bytes(view.dtype, view.columns()), CopyKind::kDeviceToDevice);
    }
  }
  return {};
}

}  // namespace jige::model
