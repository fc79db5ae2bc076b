#include <map>
#include <utility>
#include <vector>

#include "plan/pipeline_verify_parts.h"

namespace jige::plan {
namespace {

using enum TaskKind;

constexpr TaskKind kReaders[] = {kForward, kRecompute, kBackwardInput, kBackwardWeight};

// Parameters on the host: every pass lies within a visit, from a fetch to its release.
class HostParameters : public VerifierBase {
 public:
  using VerifierBase::VerifierBase;

  Status run() {
    JIGE_DO(collect_visits());
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (is_pass(at(i).kind)) JIGE_DO(covered(i));
    }
    for (const auto& [place, visits] : visits_) {
      for (const Visit& visit : visits) JIGE_DO(sound(visit));
    }
    return {};
  }

 private:
  struct Visit {
    int32_t fetch = -1;
    int32_t release = -1;
    bool used = false;
  };

  Status collect_visits() {
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind != kFetch) continue;
      visits_[{at(i).device, at(i).blocks}].push_back({.fetch = i});
    }
    std::map<std::pair<int32_t, BlockRange>, size_t> released;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind != kRelease) continue;
      const std::pair place{at(i).device, at(i).blocks};
      std::vector<Visit>& visits = visits_[place];
      const size_t index = released[place]++;
      if (index >= visits.size()) {
        return fail(Code::kCorrupt, "{} gives back what was not fetched", name(i));
      }
      visits[index].release = i;
    }
    return {};
  }

  Status covered(int32_t pass) {
    for (Visit& visit : visits_[{at(pass).device, at(pass).blocks}]) {
      if (visit.release < 0) continue;
      if (!order_.before(visit.fetch, pass) || !order_.before(pass, visit.release)) continue;
      visit.used = true;
      return {};
    }
    return fail(Code::kCorrupt,
                "{} may run while its parameters are not on device {}: no fetch before it stays "
                "until after it",
                name(pass), at(pass).device);
  }

  Status sound(const Visit& visit) const {
    if (visit.release < 0) return fail(Code::kCorrupt, "{} is never released", name(visit.fetch));
    if (!visit.used) return fail(Code::kCorrupt, "{} serves no pass", name(visit.fetch));
    const BlockRange blocks = at(visit.fetch).blocks;
    const std::vector<Visit>& visits = visits_.at({at(visit.fetch).device, blocks});
    for (const Visit& other : visits) {
      if (other.fetch <= visit.fetch) continue;
      JIGE_DO(require_before(visit.release, other.fetch, "a device holds one copy of a stage"));
    }
    for (int32_t b = blocks.begin; b < blocks.end; ++b) {
      const int32_t update = passes_.update(b);
      if (update < 0) continue;
      JIGE_DO(require_before(visit.fetch, update, "all passes of a step see the same parameters"));
    }
    return {};
  }

  std::map<std::pair<int32_t, BlockRange>, std::vector<Visit>> visits_;
};

// Parameters on the device: one device a block, and updated copies come back from a host optimizer.
class DeviceParameters : public VerifierBase {
 public:
  using VerifierBase::VerifierBase;

  Status run() const {
    for (int32_t b = 0; b < schedule_.block_count; ++b) {
      const int32_t forward = passes_.pass(kForward, b, 0);
      const int32_t backward = passes_.pass(kBackwardInput, b, 0);
      if (at(forward).device == at(backward).device) continue;
      return fail(Code::kCorrupt,
                  "{} and {} need the parameters of block {} on two devices; they must be on the "
                  "host",
                  name(forward), name(backward), b);
    }
    std::vector<int32_t> returned(static_cast<size_t>(schedule_.block_count), -1);
    const bool host = schedule_.optimizer != OptimizerMode::kDevice;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind == kRelease || (at(i).kind == kFetch && !host)) {
        return fail(Code::kCorrupt, "{} although parameters stay on the device", name(i));
      }
      if (at(i).kind == kFetch) JIGE_DO(comes_back(i, returned));
    }
    for (int32_t b = 0; host && b < schedule_.block_count; ++b) {
      if (returned[static_cast<size_t>(b)] >= 0) continue;
      return fail(Code::kCorrupt, "no fetch brings the updated parameters of block {} back", b);
    }
    return {};
  }

 private:
  Status comes_back(int32_t fetch, std::vector<int32_t>& returned) const {
    for (int32_t b = at(fetch).blocks.begin; b < at(fetch).blocks.end; ++b) {
      int32_t& earlier = returned[static_cast<size_t>(b)];
      if (earlier >= 0) {
        return fail(Code::kCorrupt, "{} and {} do the same; one must go", name(earlier),
                    name(fetch));
      }
      earlier = fetch;
      if (at(fetch).device != at(passes_.pass(kForward, b, 0)).device) {
        return fail(Code::kCorrupt, "{} brings block {} to a device that does not hold it",
                    name(fetch), b);
      }
      const bool shares = schedule_.tied && b + 1 == schedule_.block_count;
      for (const int32_t update : {passes_.update(b), shares ? passes_.update(0) : -1}) {
        if (update < 0) continue;
        JIGE_DO(require_before(update, fetch, "it brings the updated parameters"));
      }
      for (const TaskKind kind : kReaders) {
        const int32_t last = passes_.pass(kind, b, schedule_.micro_batch_count - 1);
        if (last < 0) continue;
        JIGE_DO(require_before(last, fetch, "all passes of a step see the same parameters"));
      }
    }
    return {};
  }
};

}  // namespace

Status verify_parameters(const VerifierParts& parts) {
  if (parts.schedule.host_parameters) return HostParameters(parts).run();
  return DeviceParameters(parts).run();
}

}  // namespace jige::plan
