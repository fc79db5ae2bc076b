#include "plan/pipeline_order.h"

#include <algorithm>

#include "base/check.h"

namespace jige::plan {
namespace {

using enum TaskKind;

void add_backward(DeviceOrder& order, int32_t stage, int32_t micro_batch) {
  order.push_back({kBackwardInput, stage, micro_batch});
  order.push_back({kBackwardWeight, stage, micro_batch});
}

}  // namespace

std::vector<DeviceOrder> looped_orders(const PipelineOrder& stages, DevicesAndMicroBatches size) {
  std::vector<DeviceOrder> devices(static_cast<size_t>(size.devices));
  for (size_t k = 0; k < stages.forward.size(); ++k) {
    DeviceOrder& order = devices[static_cast<size_t>(stages.forward[k].device)];
    for (int32_t m = 0; m < size.micro_batches; ++m) {
      order.push_back({kForward, static_cast<int32_t>(k), m});
    }
  }
  for (size_t k = stages.backward.size(); k-- > 0;) {
    DeviceOrder& order = devices[static_cast<size_t>(stages.backward[k].device)];
    for (int32_t m = 0; m < size.micro_batches; ++m) {
      add_backward(order, static_cast<int32_t>(k), m);
    }
  }
  return devices;
}

std::vector<DeviceOrder> one_f_one_b_orders(DevicesAndMicroBatches size) {
  std::vector<DeviceOrder> devices(static_cast<size_t>(size.devices));
  for (int32_t d = 0; d < size.devices; ++d) {
    DeviceOrder& order = devices[static_cast<size_t>(d)];
    const int32_t warm_up = std::min(size.devices - 1 - d, size.micro_batches);
    for (int32_t m = 0; m < warm_up; ++m) order.push_back({kForward, d, m});
    for (int32_t m = 0; m < size.micro_batches; ++m) {
      if (warm_up + m < size.micro_batches) order.push_back({kForward, d, warm_up + m});
      add_backward(order, d, m);
    }
  }
  return devices;
}

std::vector<DeviceOrder> interleaved_orders(DevicesAndMicroBatches size,
                                            int32_t stages_per_device) {
  const int32_t p = size.devices;
  JIGE_CHECK(size.micro_batches % p == 0, "{} micro-batches on {} devices", size.micro_batches, p);
  std::vector<DeviceOrder> devices(static_cast<size_t>(p));
  const int32_t total = size.micro_batches * stages_per_device;
  const int32_t group = p * stages_per_device;
  for (int32_t d = 0; d < p; ++d) {
    DeviceOrder& order = devices[static_cast<size_t>(d)];
    // The i-th F or backward of a device: P micro-batches of a chunk, then of the next chunk.
    const auto chunk_of = [&](int32_t i) { return i % group / p; };
    const auto micro_batch_of = [&](int32_t i) { return i / group * p + i % p; };
    const auto add_forward = [&](int32_t i) {
      order.push_back({kForward, chunk_of(i) * p + d, micro_batch_of(i)});
    };
    const int32_t warm_up = std::min((p - d - 1) * 2 + (stages_per_device - 1) * p, total);
    for (int32_t i = 0; i < warm_up; ++i) add_forward(i);
    for (int32_t i = 0; i < total; ++i) {
      if (warm_up + i < total) add_forward(warm_up + i);
      add_backward(order, (stages_per_device - 1 - chunk_of(i)) * p + d, micro_batch_of(i));
    }
  }
  return devices;
}

std::vector<DeviceOrder> zb_h1_orders(DevicesAndMicroBatches size) {
  std::vector<DeviceOrder> devices(static_cast<size_t>(size.devices));
  for (int32_t d = 0; d < size.devices; ++d) {
    DeviceOrder& order = devices[static_cast<size_t>(d)];
    int32_t forwards = std::min(size.devices - d, size.micro_batches);
    int32_t weights = 0;
    for (int32_t m = 0; m < forwards; ++m) order.push_back({kForward, d, m});
    for (int32_t m = 0; m < size.micro_batches; ++m) {
      order.push_back({kBackwardInput, d, m});
      if (m >= d) order.push_back({kBackwardWeight, d, weights++});
      if (forwards < size.micro_batches) order.push_back({kForward, d, forwards++});
    }
    while (weights < size.micro_batches) order.push_back({kBackwardWeight, d, weights++});
  }
  return devices;
}

}  // namespace jige::plan
