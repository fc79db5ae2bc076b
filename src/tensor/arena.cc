#include "tensor/arena.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace jige {
namespace {

// The address sanitizer finds uses of memory that was given back only if it really was.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

}  // namespace

Tensor::Tensor(Arena* arena, TensorView view, int64_t bytes)
    : arena_(arena), view_(view), bytes_(bytes) {}

Tensor::Tensor(Tensor&& other) noexcept { *this = std::move(other); }

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(view_, other.view_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Tensor::~Tensor() {
  if (arena_) arena_->give_back(view_.data, bytes_);
}

Arena::Arena(Device& device, std::string name, int64_t capacity_bytes)
    : device_(device), name_(std::move(name)), capacity_bytes_(capacity_bytes) {}

Arena::~Arena() {
  JIGE_CHECK(used_bytes_ == 0, "arena {} destroyed with {} bytes in use", name_, used_bytes_);
  shrink_kept(0);
}

Result<Tensor> Arena::make(DType dtype, Shape shape) {
  const int64_t bytes = arena_bytes(dtype, shape);
  void* kept = nullptr;
  int64_t peak_before = 0, peak_with = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes == kUnlimitedBytes || bytes > capacity_bytes_ - used_bytes_) {
      return fail(Code::kExhausted, "{}: {} asked, {} of {} free; raise the budget or make less",
                  name_, format_bytes(bytes), format_bytes(capacity_bytes_ - used_bytes_),
                  format_bytes(capacity_bytes_));
    }
    used_bytes_ += bytes;
    peak_before = peak_bytes_;
    peak_bytes_ = peak_with = std::max(peak_bytes_, used_bytes_);
    kept = take_kept(bytes);
    if (!kept) shrink_kept(kept_limit());
  }
  if (kept) return Tensor(this, TensorView::of(kept, dtype, shape), bytes);
  auto data = device_.allocate(bytes);
  if (!data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    used_bytes_ -= bytes;
    // What was never there does not count, unless others have come on top of it meanwhile.
    if (peak_bytes_ == peak_with) peak_bytes_ = std::max(peak_before, used_bytes_);
    return with_context(std::move(data.error()), "{}", name_);
  }
  return Tensor(this, TensorView::of(*data, dtype, shape), bytes);
}

Result<Tensor> Arena::make_zero(DType dtype, Shape shape) {
  JIGE_TRY(Tensor tensor, make(dtype, shape));
  JIGE_TRY(const auto stream, device_.make_stream());
  stream->fill_zero(tensor.view().data, tensor.bytes());
  stream->synchronize();
  return tensor;
}

int64_t Arena::used_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

int64_t Arena::peak_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peak_bytes_;
}

void Arena::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  peak_bytes_ = used_bytes_;
  shrink_kept(peak_bytes_);
}

void Arena::give_back(void* data, int64_t bytes) {
  if (!kKeeps || bytes == 0) device_.release(data, bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  used_bytes_ -= bytes;
  if (!kKeeps || bytes == 0) return;
  kept_[bytes].push_back(data);
  kept_bytes_ += bytes;
}

void* Arena::take_kept(int64_t bytes) {
  const auto found = kept_.find(bytes);
  if (found == kept_.end()) return nullptr;
  void* const data = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) kept_.erase(found);
  kept_bytes_ -= bytes;
  return data;
}

void Arena::shrink_kept(int64_t limit) {
  while (!kept_.empty() && used_bytes_ + kept_bytes_ > limit) {
    const int64_t bytes = kept_.rbegin()->first;
    device_.release(take_kept(bytes), bytes);
  }
}

int64_t Arena::kept_limit() const {
  const bool gpu = device_.kind() == DeviceKind::kCuda && capacity_bytes_ != kUnlimitedBytes;
  return gpu ? capacity_bytes_ : peak_bytes_;
}

int64_t arena_bytes(DType dtype, const Shape& shape) {
  int64_t count = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    // A dimension of zero makes any product zero, so it must not be missed behind an overflow.
    if (shape[axis] == 0) return 0;
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (__builtin_mul_overflow(count, shape[axis], &count)) return kUnlimitedBytes;
  }
  if (count > kUnlimitedBytes / 16) return kUnlimitedBytes;  // no type has more bytes an element
  return whole_lines(dtype_bytes(dtype, count));
}

}  // namespace jige
