// What the tests of this folder share: groups of threads over each transport, links with random
// delays, values whose sums depend on the order, and a plain oracle for every collective.
//
// Threads: each rank of a group runs on a thread of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "comm/communicator.h"
#include "comm/shared_transport.h"
#include "comm/tcp_mesh.h"
#include "comm/tcp_transport.h"

namespace jige::comm {

using Transports = std::vector<std::unique_ptr<Transport>>;

// Ranks with memory mapped by each of them, as processes have it.
inline Transports memory_transports(int size, const RingPlan& plan) {
  auto made = SharedRegion::for_processes(region_shape(size, plan));
  EXPECT_TRUE(made);
  const std::vector<SharedMember> members(static_cast<size_t>(size), {.host = "mapped"});
  Transports transports;
  for (int r = 0; r < size; ++r) {
    auto region = SharedRegion::attach(dup(made->fd()), region_shape(size, plan));
    EXPECT_TRUE(region);
    transports.push_back(*make_shared_transport(std::make_shared<SharedRegion>(std::move(*region)),
                                                r, plan, members));
  }
  return transports;
}

inline Transports tcp_transports(int size, const RingPlan& plan) {
  std::vector<MeshMember> members;
  std::vector<Listener> listeners;
  for (int r = 0; r < size; ++r) {
    listeners.push_back(*Listener::open({"127.0.0.1", 0}));
    members.push_back({"looped", listeners.back().address()});
  }
  Transports transports(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      auto mesh = connect_mesh(members, listeners[static_cast<size_t>(r)], plan,
                               {.rank = r, .token = 7}, Deadline::after(20));
      if (mesh) transports[static_cast<size_t>(r)] = make_tcp_transport(std::move(*mesh), plan);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& transport : transports) EXPECT_NE(transport, nullptr);
  return transports;
}

inline Transports make_transports(const std::string& kind, int size, const RingPlan& plan) {
  if (kind == "threads") return *make_thread_transports(size, plan);
  if (kind == "shm") return memory_transports(size, plan);
  return tcp_transports(size, plan);
}

// Every link gives less than it could, at random, and every now and then sleeps.
class DelayedTransport final : public Transport {
 public:
  DelayedTransport(std::unique_ptr<Transport> inner, uint64_t seed)
      : Transport(inner->rank(), hosts_of(*inner), inner->stream_bytes()),
        inner_(std::move(inner)),
        rng_(derive_key(seed, "delays", static_cast<uint64_t>(rank()))) {}

  const char* kind() const override { return inner_->kind(); }
  Result<std::span<const std::byte>> ready(Link link) override {
    JIGE_TRY(const std::span<const std::byte> in, inner_->ready(link));
    return in.first(cut(in.size()));
  }
  std::span<const std::byte> glance(Link link) override {
    const std::span<const std::byte> in = inner_->glance(link);
    return in.first(cut(in.size()));
  }
  void consume(Link link, int64_t bytes) override { inner_->consume(link, bytes); }
  Result<std::span<std::byte>> room(Link link) override {
    JIGE_TRY(const std::span<std::byte> out, inner_->room(link));
    return out.first(cut(out.size()));
  }
  Status commit(Link link, int64_t bytes) override {
    if (rng_.below(16) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng_.below(300)));
    }
    return inner_->commit(link, bytes);
  }
  Status flush(Deadline deadline) override { return inner_->flush(deadline); }
  Status wait(std::span<const Want> wants, Deadline deadline) override {
    return inner_->wait(wants, deadline);
  }
  void interrupt() override { inner_->interrupt(); }
  double silent_seconds(int rank) const override { return inner_->silent_seconds(rank); }
  void abort(const Error& error) override { inner_->abort(error); }
  Error timeout_error(std::span<const Want> wants, double seconds) override {
    return inner_->timeout_error(wants, seconds);
  }

 private:
  static std::vector<std::string> hosts_of(const Transport& transport) {
    std::vector<std::string> hosts;
    for (int r = 0; r < transport.size(); ++r) hosts.push_back(transport.host(r));
    return hosts;
  }
  size_t cut(size_t bytes) {
    if (bytes == 0 || rng_.below(4) == 0) return bytes;
    return rng_.below(bytes / kUnitBytes + 1) * kUnitBytes;
  }

  std::unique_ptr<Transport> inner_;
  Rng rng_;
};

// Runs body on every rank, each on its thread; the errors by rank, empty for none.
inline std::vector<std::string> run_ranks(Transports transports, const RingPlan& plan,
                                          const CommOptions& options,
                                          const std::function<Status(Communicator&)>& body) {
  std::vector<std::string> errors(transports.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < transports.size(); ++r) {
    threads.emplace_back([&, r] {
      auto group = Communicator::over(std::move(transports[r]), plan, options);
      const Status ran = group ? body(*group) : Status(tl::unexpected<Error>(group.error()));
      if (!ran) errors[r] = ran.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Element `index` of a rank's contribution, as f32: of very different sizes, so that the order of
// additions shows.
inline float test_value(int rank, int64_t index) {
  // A mixer of 64 bits: the oracle asks for every rank's elements on every rank.
  uint64_t bits = (static_cast<uint64_t>(rank) << 40) + static_cast<uint64_t>(index) + 77;
  for (int round = 0; round < 2; ++round) {
    bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15;
  }
  const float scale[] = {1.0f, 0.01f, 64.0f, 1000.0f};
  return (static_cast<float>(bits >> 32) / 4294967296.0f - 0.5f) * scale[bits >> 30 & 3];
}

inline double load_element(DType dtype, const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  float f;
  int32_t i;
  switch (dtype) {
    case DType::kBF16:
      return to_float(BFloat16{half});
    case DType::kF16:
      return to_float(Float16{half});
    case DType::kI32:
      std::memcpy(&i, at, 4);
      return i;
    default:
      std::memcpy(&f, at, 4);
      return f;
  }
}

inline void store_element(DType dtype, double value, std::byte* at) {
  if (dtype == DType::kI32) {
    const auto wrapped = static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(value)));
    std::memcpy(at, &wrapped, 4);
  } else if (dtype == DType::kF32) {
    const auto f = static_cast<float>(value);
    std::memcpy(at, &f, 4);
  } else if (dtype == DType::kBF16) {
    const uint16_t bits = to_bfloat16(static_cast<float>(value)).bits;
    std::memcpy(at, &bits, 2);
  } else {
    const uint16_t bits = to_float16(static_cast<float>(value)).bits;
    std::memcpy(at, &bits, 2);
  }
}

// `left` op `right`, rounded to the type; sums of two f32 in double round once.
inline double apply_redop(DType dtype, RedOp op, double left, double right) {
  double value = left + right;
  if (op == RedOp::kMin) value = std::min(left, right);
  if (op == RedOp::kMax) value = std::max(left, right);
  if (dtype == DType::kBF16 || dtype == DType::kF16) value = static_cast<float>(value);
  std::byte cell[4];
  store_element(dtype, value, cell);
  return load_element(dtype, cell);
}

inline std::vector<std::byte> test_data(DType dtype, int rank, int64_t count) {
  std::vector<std::byte> data(static_cast<size_t>(dtype_bytes(dtype, count)));
  const int64_t size = dtype_info(dtype).block_bytes;
  for (int64_t i = 0; i < count; ++i) {
    double value = test_value(rank, i);
    if (dtype == DType::kI32) value = static_cast<int32_t>(value * 1e6);
    store_element(dtype, value, data.data() + i * size);
  }
  return data;
}

// The rank positions from which the additions of element `index` start: as the head of ring_plan.h
// says, element by element.
struct OracleStart {
  const Ring* ring;
  int64_t position;
};
inline OracleStart all_reduce_start(const RingPlan& plan, const std::vector<Range>& parts,
                                    int64_t element_bytes, int64_t index) {
  size_t r = 0;
  while (index >= parts[r].end()) ++r;
  const int64_t n = plan.rings[r].size();
  const int64_t unit = kUnitBytes / element_bytes;
  const int64_t block = plan.piece_bytes / element_bytes * n;
  const int64_t within_part = index - parts[r].begin;
  const int64_t in_block = std::min(block, parts[r].count - within_part / block * block);
  int64_t segment = 0;
  while (segment * n < in_block) segment += unit;
  return {&plan.rings[r], within_part % block / segment};
}

// The sum of an average, divided.
inline double average_of(DType dtype, RedOp op, double value, int n) {
  if (op != RedOp::kAvg || n == 1) return value;
  std::byte cell[4];
  const double quotient =
      dtype == DType::kI32 ? std::trunc(value / n)
                           : static_cast<double>(static_cast<float>(value) / static_cast<float>(n));
  store_element(dtype, quotient, cell);
  return load_element(dtype, cell);
}

// One element of a reduction from every rank's contribution of it.
inline double reduce_element(DType dtype, RedOp op, const OracleStart& start,
                             const std::function<double(int rank)>& of) {
  const int n = start.ring->size();
  double value = of(start.ring->at(start.position));
  for (int i = 1; i < n; ++i) {
    value = apply_redop(dtype, op, value, of(start.ring->at(start.position + i)));
  }
  return average_of(dtype, op, value, n);
}

// One element of a reduction on trees, from every rank's contribution of it: as the head of
// tree_pair.h says. `root` < 0: the tree's own.
inline double tree_sum(DType dtype, RedOp op, const TreePair& trees, size_t tree, int rank,
                       int from, const std::function<double(int rank)>& of) {
  double value = of(rank);
  for (int next = 0; next < static_cast<int>(trees.parent[tree].size()); ++next) {
    const bool child = trees.parent[tree][static_cast<size_t>(next)] == rank;
    const bool above = trees.parent[tree][static_cast<size_t>(rank)] == next;
    if (next == from || !(child || above)) continue;
    value = apply_redop(dtype, op, value, tree_sum(dtype, op, trees, tree, next, rank, of));
  }
  return value;
}
inline double reduce_element_on_trees(DType dtype, RedOp op, const TreePair& trees, int root,
                                      int64_t index, int64_t count,
                                      const std::function<double(int rank)>& of) {
  const int64_t unit = kUnitBytes / dtype_info(dtype).block_bytes;
  int64_t half = 0;
  while (2 * half < count) half += unit;
  const size_t tree = index < half ? 0 : 1;
  const int n = static_cast<int>(trees.parent[tree].size());
  int top = root;
  for (int r = 0; root < 0 && r < n; ++r) {
    if (trees.parent[tree][static_cast<size_t>(r)] < 0) top = r;
  }
  return average_of(dtype, op, tree_sum(dtype, op, trees, tree, top, -1, of), n);
}

}  // namespace jige::comm
