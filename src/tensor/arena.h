// Arena: device memory under a hard cap, with its peak recorded. Tensor: a view that owns its
// memory in an arena.
//
// Invariants: (1) used_bytes() <= capacity_bytes() at all times; what would pass it is refused.
//             (2) peak_bytes() is the largest used_bytes() since construction or reset_peak().
//             (3) an arena outlives its tensors; a destroyed arena with live tensors is a bug.
//             (4) what it takes from the device is never more than peak_bytes(), or on a GPU
//                 than the cap: there memory that is given back keeps all streams waiting.
// Sizes count as rounded up to 64 bytes. Memory of a tensor that ended is kept for the next one of
// the same size, within (4): the buffers of a schedule come and go in every step.
// Threads: an Arena may be used from any thread; a Tensor belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige {

inline constexpr int64_t kUnlimitedBytes = INT64_MAX;

class Arena;

class Tensor {
 public:
  Tensor() = default;
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  const TensorView& view() const { return view_; }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return arena_ != nullptr; }

 private:
  friend class Arena;
  Tensor(Arena* arena, TensorView view, int64_t bytes);
  Arena* arena_ = nullptr;
  TensorView view_;
  int64_t bytes_ = 0;
};

class Arena {
 public:
  // `name` appears in errors, for example "cpu0 activations".
  Arena(Device& device, std::string name, int64_t capacity_bytes = kUnlimitedBytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialised memory. Fails with kExhausted, naming the arena, what was asked and what is free.
  Result<Tensor> make(DType dtype, Shape shape);
  // Memory set to zero.
  Result<Tensor> make_zero(DType dtype, Shape shape);

  Device& device() { return device_; }
  const std::string& name() const { return name_; }
  int64_t capacity_bytes() const { return capacity_bytes_; }
  int64_t used_bytes() const;
  int64_t peak_bytes() const;
  void reset_peak();

 private:
  friend class Tensor;
  void give_back(void* data, int64_t bytes);
  // With the mutex held. Null where nothing of this size is kept.
  void* take_kept(int64_t bytes);
  // Releases kept memory, the largest first, until used_bytes_ + kept_bytes_ <= limit.
  void shrink_kept(int64_t limit);
  // What that is while nothing is asked to go.
  int64_t kept_limit() const;

  Device& device_;
  std::string name_;
  const int64_t capacity_bytes_;
  mutable std::mutex mutex_;
  int64_t used_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t kept_bytes_ = 0;
  std::map<int64_t, std::vector<void*>> kept_;  // by size; no list is empty
};

// Bytes in whole cache lines, as every size here counts.
inline int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes an arena counts for a tensor of this type and shape; kUnlimitedBytes when they are beyond
// what 64 bits can count.
int64_t arena_bytes(DType dtype, const Shape& shape);

}  // namespace jige
