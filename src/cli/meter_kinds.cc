#include "cli/meter_kinds.h"

#include <fmt/ranges.h>

#include <string>

#include "cli/flags.h"

namespace jige::cli {

MeterKinds::MeterKinds() {
  real_.push_back(make_hosts_kind());
  real_.push_back(make_shm_kind());
  real_.push_back(make_mpi_kind());
  real_.push_back(make_gpus_kind());
}

void MeterKinds::declare(Flags& flags) {
  flags_ = &flags;
  for (const auto& kind : real_) kind->declare(flags);
}

Result<const MeterKind*> MeterKinds::chosen(const TopologyFlags& source) const {
  const MeterKind* found = &simulated_;
  for (const auto& kind : real_) {
    if (!flags_ || !flags_->given(kind->flag())) continue;
    if (found != &simulated_) {
      std::vector<std::string_view> names;
      for (const auto& one : real_) names.push_back(one->flag());
      return fail(Code::kInvalidArgument, "{} and {} do not go together; give one of {}",
                  found->flag(), kind->flag(), fmt::join(names, ", "));
    }
    found = kind.get();
  }
  JIGE_DO(refuse_flags_of_others(*found));
  if (!found->takes_source() && source.source != "auto") {
    return fail(Code::kInvalidArgument, "--source is of this machine's parts; {} shows others",
                found->flag());
  }
  return found;
}

Status MeterKinds::refuse_flags_of_others(const MeterKind& chosen) const {
  if (&chosen == &simulated_ && flags_) {
    JIGE_DO(flags_->refuse({"--set-seconds", "--timeout"},
                           "is of real measurements, and rates are simulated; leave it out"));
  }
  std::vector<const MeterKind*> others = {&simulated_};
  for (const auto& kind : real_) others.push_back(kind.get());
  for (const MeterKind* other : others) {
    if (other == &chosen) continue;
    for (const std::string_view flag : other->own_flags()) {
      if (!flags_ || !flags_->given(flag)) continue;
      return fail(Code::kInvalidArgument, "{} goes with {}, not with {}", flag, other->flag(),
                  chosen.flag());
    }
  }
  return {};
}

}  // namespace jige::cli
