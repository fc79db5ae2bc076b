#include "train/undo_images.h"

#include <array>
#include <utility>

namespace jige::train {
namespace {

std::array<TensorView, 3> state_of(const Optimizer& optimizer, size_t i) {
  return {optimizer.params()[i].value, optimizer.moment1(i), optimizer.moment2(i)};
}

}  // namespace

Result<UndoImages> UndoImages::create(std::span<Arena* const> arenas, const Optimizer& optimizer) {
  UndoImages images;
  for (const model::NamedParam& param : optimizer.params()) {
    JIGE_TRY(Tensor image, arenas[param.node]->make(DType::kF32, Shape{3, param.value.count()}));
    images.images_.push_back(std::move(image));
  }
  return images;
}

void UndoImages::save(Stream& stream, const Optimizer& optimizer, size_t i) {
  const std::array<TensorView, 3> state = state_of(optimizer, i);
  for (int64_t part = 0; part < 3; ++part) {
    const TensorView& source = state[static_cast<size_t>(part)];
    stream.copy(images_[i].view().row_range(part, part + 1).data, source.data, source.count() * 4,
                CopyKind::kDeviceToDevice);
  }
}

void UndoImages::restore(Stream& stream, const Optimizer& optimizer, size_t i) {
  const std::array<TensorView, 3> state = state_of(optimizer, i);
  for (int64_t part = 0; part < 3; ++part) {
    const TensorView& target = state[static_cast<size_t>(part)];
    stream.copy(target.data, images_[i].view().row_range(part, part + 1).data, target.count() * 4,
                CopyKind::kDeviceToDevice);
  }
}

}  // namespace jige::train
