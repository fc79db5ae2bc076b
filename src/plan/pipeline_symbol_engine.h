// An engine for tests that runs schedules with symbols instead of numbers, in random orders that
// queues and dependencies allow: a boundary is on a device or not, parameters have a version, a
// gradient is the list of micro-batches added so far. It shares no code with the verifier.
//
//   Rng rng(1);
//   EXPECT_EQ(SymbolEngine(schedule).run(rng), "");
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

class SymbolEngine {
 public:
  explicit SymbolEngine(const PipelineSchedule& schedule) : schedule_(schedule) {}

  // One random run. Returns what went wrong, or "".
  std::string run(Rng& rng) {
    std::map<std::tuple<int32_t, QueueKind, int32_t>, std::vector<int32_t>> queues;
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      const PipelineTask& task = schedule_.tasks[i];
      const QueueKind kind = queue_of(schedule_, task.kind);
      queues[{task.device, kind, kind == QueueKind::kReceive ? task.peer : -1}].push_back(
          static_cast<int32_t>(i));
    }
    std::vector<std::vector<int32_t>> lists;
    for (auto& [key, list] : queues) lists.push_back(list);
    std::vector<size_t> position(lists.size(), 0);
    std::vector<size_t> waits_for(schedule_.tasks.size());  // tasks that are not done
    std::vector<std::vector<int32_t>> followers(schedule_.tasks.size());
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      const std::vector<int32_t>& after = schedule_.tasks[i].after;
      waits_for[i] = after.size();
      for (const int32_t id : after) {
        followers[static_cast<size_t>(id)].push_back(static_cast<int32_t>(i));
      }
    }
    std::vector<size_t> ready;
    for (size_t count = 0; count < schedule_.tasks.size(); ++count) {
      ready.clear();
      for (size_t q = 0; q < lists.size(); ++q) {
        if (position[q] == lists[q].size()) continue;
        if (waits_for[static_cast<size_t>(lists[q][position[q]])] == 0) ready.push_back(q);
      }
      if (ready.empty()) return "stands still";
      const size_t q = ready[rng.below(ready.size())];
      const int32_t task = lists[q][position[q]++];
      if (std::string fault = execute(task); !fault.empty()) {
        return fmt::format("{}: {}", describe_task(schedule_, task), fault);
      }
      for (const int32_t next : followers[static_cast<size_t>(task)]) {
        --waits_for[static_cast<size_t>(next)];
      }
    }
    return finish();
  }

 private:
  using enum TaskKind;

  // 8 bits, 20, 20 and 16; no device is -1.
  static uint64_t value(char what, int32_t block, int32_t m, int32_t device) {
    return static_cast<uint64_t>(what) << 56 | static_cast<uint64_t>(block) << 36 |
           static_cast<uint64_t>(m) << 16 | static_cast<uint16_t>(device);
  }
  const PipelineTask& at(int32_t task) const { return schedule_.tasks[static_cast<size_t>(task)]; }
  bool has(char what, int32_t block, int32_t m, int32_t device) const {
    return values_.contains(value(what, block, m, device));
  }
  void put(char what, int32_t block, int32_t m, int32_t device) {
    values_.insert(value(what, block, m, device));
  }
  bool host_optimizer() const { return schedule_.optimizer != OptimizerMode::kDevice; }

  std::string execute(int32_t id) {
    const PipelineTask& t = at(id);
    switch (t.kind) {
      case kForward:
      case kRecompute:
      case kBackwardInput:
      case kBackwardWeight:
        return execute_pass(t);
      case kFetch:
        return fetch(t);
      case kRelease:
        if (!resident_.erase({t.device, t.blocks})) return "nothing to release";
        return "";
      case kGradientOffload:
      case kOptimizerStep:
        return update(t);
      case kBarrier:
        return "";
      default:
        return transfer(t);
    }
  }

  std::string parameters_there(const PipelineTask& t) const {
    if (schedule_.host_parameters && !resident_.contains({t.device, t.blocks})) {
      return "parameters are not there";
    }
    for (int32_t b = t.blocks.begin; b < t.blocks.end; ++b) {
      const bool newer = schedule_.host_parameters ? resident_.at({t.device, t.blocks}) != 0
                                                   : device_updated_.contains(b);
      if (newer) return "parameters are from the next step";
    }
    return "";
  }

  std::string execute_pass(const PipelineTask& t) {
    const int32_t m = t.micro_batch, d = t.device;
    if (t.kind != kBackwardWeight) {
      if (std::string fault = parameters_there(t); !fault.empty()) return fault;
    }
    const int32_t begin = t.blocks.begin, end = t.blocks.end;
    if (t.kind == kForward || t.kind == kRecompute) {
      if (begin > 0 && !has('a', begin, m, d)) return "its input is not there";
      if (t.kind == kForward) put('a', end, m, d);
      for (int32_t b = begin; b < end; ++b) {
        if (t.kind == kForward) {
          if (has('f', b, m, -1)) return "forward twice";
          put('f', b, m, -1);
          put('a', b, m, d);
        }
        if (t.kind == kRecompute || !schedule_.recompute) put('s', b, m, d);
      }
      return "";
    }
    for (int32_t b = begin; b < end; ++b) {
      if (!has('s', b, m, d)) return "activations are not there";
      if (t.kind == kBackwardInput) {
        if (has('x', b, m, -1)) return "X twice";
        put('x', b, m, -1);
        put('p', b, m, d);
      } else {
        if (!has('p', b, m, d)) return "W without X";
        gradients_[{b, d}].push_back(m);
      }
    }
    if (t.kind == kBackwardInput) {
      if (end < schedule_.block_count && !has('g', end, m, d)) return "its gradient is not there";
      put('g', begin, m, d);
    }
    return "";
  }

  std::string transfer(const PipelineTask& t) {
    const char what = t.kind == kSendGradient || t.kind == kReceiveGradient ? 'g' : 'a';
    const auto channel =
        is_send(t.kind) ? std::pair(t.device, t.peer) : std::pair(t.peer, t.device);
    const std::tuple message{what, t.kind == kCheckpointSend || t.kind == kCheckpointReceive,
                             t.blocks.begin, t.micro_batch};
    auto& queue = in_flight_[channel];
    if (is_send(t.kind)) {
      if (!has(what, t.blocks.begin, t.micro_batch, t.device)) return "nothing to send yet";
      queue.push_back(message);
      return "";
    }
    if (queue.empty()) return "nothing has been sent";
    if (queue.front() != message) return "another message arrives";
    queue.erase(queue.begin());
    put(what, t.blocks.begin, t.micro_batch, t.device);
    return "";
  }

  std::string fetch(const PipelineTask& t) {
    int32_t version = 0;
    for (int32_t b = t.blocks.begin; b < t.blocks.end; ++b) {
      version += updated_.contains(b);
      if (!schedule_.host_parameters) {
        if (!updated_.contains(b)) return "parameters come back before they are updated";
        device_updated_.insert(b);
      }
    }
    if (!schedule_.host_parameters) return "";
    if (version != 0) return "parameters are from the next step";
    if (!resident_.emplace(std::pair{t.device, t.blocks}, version).second) return "fetched twice";
    return "";
  }

  bool whole(int32_t b, int32_t device) const {
    const auto found = gradients_.find({b, device});
    if (found == gradients_.end()) return false;
    std::vector<int32_t> all;
    for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) all.push_back(m);
    return found->second == all;  // each once, in ascending order
  }

  std::string update(const PipelineTask& t) {
    for (int32_t b = t.blocks.begin; b < t.blocks.end; ++b) {
      if (!whole(b, t.device)) return "the gradient is not whole";
      if (t.kind == kGradientOffload) {
        if (!offloaded_.insert(b).second) return "offloaded twice";
        continue;
      }
      if (host_optimizer() && !offloaded_.contains(b)) return "the gradient is not on the host";
      if (!updated_.insert(b).second) return "updated twice";
      if (!host_optimizer()) device_updated_.insert(b);
    }
    if (t.kind != kOptimizerStep) return "";
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        const bool over = has('x', b, m, -1) && has('f', b, m, -1);
        if (schedule_.optimizer == OptimizerMode::kSync && !over) return "passes are not over";
      }
      const bool there = host_optimizer() ? offloaded_.contains(b) : any_whole(b);
      if (schedule_.clip == ClipMode::kExact && !there) return "the norm is not known";
    }
    return "";
  }

  bool any_whole(int32_t b) const {
    for (int32_t d = 0; d < schedule_.device_count; ++d) {
      if (whole(b, d)) return true;
    }
    return false;
  }

  std::string finish() const {
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      if (!updated_.contains(b)) return fmt::format("block {} is not updated", b);
      if (!schedule_.host_parameters && !device_updated_.contains(b)) {
        return fmt::format("the device copy of block {} is old", b);
      }
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        if (!has('f', b, m, -1)) return "a forward pass is missing";
      }
    }
    if (!resident_.empty()) return "parameters are left on a device";
    for (const auto& [channel, queue] : in_flight_) {
      if (!queue.empty()) return "a message is left over";
    }
    return "";
  }

  const PipelineSchedule& schedule_;
  std::unordered_set<uint64_t> values_;
  std::map<std::pair<int32_t, BlockRange>, int32_t> resident_;
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> gradients_;
  std::map<std::pair<int32_t, int32_t>, std::vector<std::tuple<char, bool, int32_t, int32_t>>>
      in_flight_;
  std::set<int32_t> updated_, offloaded_, device_updated_;
};

}  // namespace jige::plan
