#include "profile/profiler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/log.h"
#include "base/rng.h"

namespace jige::profile {

using topology::Transfer;

namespace {

// As the store lists members: by name, their rates following.
std::pair<MeasurementStore::Key, Measurement> by_name(std::vector<std::string> names,
                                                      Measurement m) {
  std::vector<std::pair<std::string, double>> members;
  for (size_t i = 0; i < names.size(); ++i)
    members.emplace_back(std::move(names[i]), m.gb_per_s[i]);
  std::ranges::sort(members);
  MeasurementStore::Key key;
  for (size_t i = 0; i < members.size(); ++i) {
    key.push_back(std::move(members[i].first));
    m.gb_per_s[i] = members[i].second;
  }
  return {std::move(key), std::move(m)};
}

// And back: in the order of `names`. REQUIRES: those of the key.
Measurement in_order(std::span<const std::string> names, const MeasurementStore::Key& key,
                     const Measurement& m) {
  Measurement ordered = m;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto at = std::ranges::find(key, names[i]) - key.begin();
    ordered.gb_per_s[i] = m.gb_per_s[static_cast<size_t>(at)];
  }
  return ordered;
}

bool fit_one_ring(const Transfer& a, const Transfer& b) { return a.src != b.src && a.dst != b.dst; }

}  // namespace

Profiler::Profiler(const topology::Topology& topology, LinkMeter& meter, MeasurementStore* store,
                   ProfilerOptions options)
    : topology_(topology),
      meter_(meter),
      store_(store),
      options_(options),
      symmetry_(no_symmetry(topology)) {
  if (!store_) return;
  for (const auto& [names, measurement] : store_->all()) {
    std::vector<Transfer> set;
    for (const std::string& name : names) {
      // A set that names what this topology has not cannot be asked for either.
      if (const auto transfer = topology::parse_transfer(topology_, name)) set.push_back(*transfer);
    }
    if (set.empty()) shared_.insert_or_assign(names, measurement);
    if (set.size() != names.size()) continue;
    exact_[key_of(set)] = measurement.rate;
    if (options_.check_stored) watch(set, measurement.rate);
  }
  if (!sentinels_.empty()) since_look_ = options_.check_every;
}

void Profiler::watch(Set set, double rate) {
  if (!sentinels_.empty() && set.size() <= sentinels_.back().set.size()) return;
  if (sentinels_.size() == 2) sentinels_.pop_back();
  sentinels_.push_back({{set.begin(), set.end()}, rate});
}

std::string Profiler::key_of(std::vector<Transfer> set) {
  std::ranges::sort(set);
  std::string key;
  key.reserve(set.size() * 8);
  for (const Transfer& t : set) {
    const uint64_t packed = static_cast<uint64_t>(t.kind) | static_cast<uint64_t>(t.engine) << 2 |
                            static_cast<uint64_t>(t.src) << 3 | static_cast<uint64_t>(t.dst) << 23 |
                            static_cast<uint64_t>(t.via + 1) << 43;
    char bytes[sizeof packed];
    std::memcpy(bytes, &packed, sizeof packed);
    key.append(bytes, sizeof packed);
  }
  return key;
}

Status Profiler::keep(Set set, const Measurement& m) {
  exact_[key_of({set.begin(), set.end()})] = m.rate;
  if (symmetry_.permutations.size() > 1) canonical_[key_of(symmetry_.canonical(set))] = m.rate;
  if (!store_) return {};
  const auto [names, ordered] = by_name(names_of(set, {}), m);
  return store_->append(names, ordered);
}

void Profiler::count(const Measurement& m) {
  ++counts_.measured;
  counts_.cost_s += m.cost_s;
  if (on_measured_) on_measured_();
}

Result<Measurement> Profiler::measure(Set set) {
  JIGE_TRY(Measurement m, meter_.measure(set));
  count(m);
  // What was measured across a change belongs to neither side.
  JIGE_TRY(const bool changed, have_changed());
  if (changed) return measure(set);
  watch(set, m.rate);
  JIGE_DO(keep(set, m));
  return m;
}

// Of members, in their order; with shares "0.25 of gpu0>gpu1:push", which is no name of a transfer,
// so that amounts that differ are another set.
std::vector<std::string> Profiler::names_of(Set set, std::span<const double> shares) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < set.size(); ++i) {
    const std::string name = topology::transfer_text(topology_, set[i]);
    names.push_back(shares.empty() ? name : fmt::format("{:.6g} of {}", shares[i], name));
  }
  return names;
}

Result<Measurement> Profiler::measure_shares(Set set, std::span<const double> shares) {
  JIGE_TRY(Measurement m, meter_.measure_shares(set, shares));
  count(m);
  JIGE_TRY(const bool changed, have_changed());
  if (changed) return measure_shares(set, shares);
  const auto [names, ordered] = by_name(names_of(set, shares), m);
  shared_.insert_or_assign(names, ordered);
  if (store_) JIGE_DO(store_->append(names, ordered));
  return m;
}

Result<Measurement> Profiler::shares(Set set, std::span<const double> shares) {
  const std::vector<std::string> names = names_of(set, shares);
  MeasurementStore::Key key = names;
  std::ranges::sort(key);
  const auto known = shared_.find(key);
  if (known == shared_.end()) return measure_shares(set, shares);
  ++counts_.recalled;
  return in_order(names, key, known->second);
}

Result<bool> Profiler::have_changed() {
  if (options_.check_every == 0 || sentinels_.empty()) return false;
  if (++since_look_ < options_.check_every) return false;
  const int32_t before = epoch_;
  JIGE_DO(look_for_change());
  return epoch_ != before;
}

Status Profiler::look_for_change() {
  since_look_ = 0;
  for (const Sentinel& sentinel : sentinels_) {
    JIGE_TRY(const Measurement again, meter_.measure(sentinel.set));
    count(again);
    const double change = std::fabs(again.rate - sentinel.rate) / sentinel.rate;
    if (change <= options_.change_tolerance + again.half_width) continue;
    last_change_ =
        fmt::format("{} was {:.3g}, is {:.3g} GB/s",
                    fmt::join(set_names(topology_, sentinel.set), ","), sentinel.rate, again.rate);
    log_warn("{}: rates changed while profiling ({}); measuring anew", topology_.name(),
             last_change_);
    if (store_) JIGE_DO(store_->invalidate(last_change_));
    exact_.clear();
    canonical_.clear();
    shared_.clear();
    ++epoch_;
    sentinels_ = {Sentinel{sentinel.set, again.rate}};
    return keep(sentinels_.front().set, again);
  }
  return {};
}

// The first answers are looked at often: 1, 2, 4, 8 …
bool Profiler::audit_is_due() {
  if (options_.audit_every == 0) return false;
  const bool early = std::has_single_bit(static_cast<uint64_t>(counts_.by_symmetry));
  return ++since_audit_ >= options_.audit_every || early;
}

Result<double> Profiler::rate(Set set) {
  if (const auto known = exact_.find(key_of({set.begin(), set.end()})); known != exact_.end()) {
    ++counts_.recalled;
    return known->second;
  }
  if (symmetry_.permutations.size() > 1) {
    const auto known = canonical_.find(key_of(symmetry_.canonical(set)));
    if (known != canonical_.end()) {
      ++counts_.recalled;
      ++counts_.by_symmetry;
      if (!audit_is_due()) return known->second;
      return audited(set, known->second);
    }
  }
  JIGE_TRY(const Measurement m, measure(set));
  return m.rate;
}

Result<double> Profiler::audited(Set set, double expected) {
  since_audit_ = 0;
  const int32_t before = epoch_;
  JIGE_TRY(const Measurement m, measure(set));
  if (epoch_ != before) return m.rate;  // what was expected is of another time
  const double difference = std::fabs(m.rate - expected);
  if (difference <= symmetry_tolerance_ * std::max(m.rate, expected)) return m.rate;
  last_change_ = fmt::format("{} runs at {:.3f} GB/s, its mirror image at {:.3f}",
                             fmt::join(set_names(topology_, set), ","), m.rate, expected);
  log_warn("{}: what looks alike is not ({}); measuring every set", topology_.name(), last_change_);
  symmetry_ = no_symmetry(topology_);
  symmetry_failed_ = true;
  canonical_.clear();
  ++epoch_;
  return m.rate;
}

Result<bool> Profiler::agrees(const Permutation& permutation, Set set) {
  std::vector<Transfer> other;
  for (const Transfer& t : set) other.push_back(image(permutation, t));
  JIGE_TRY(const double a, rate(set));
  JIGE_TRY(const double b, rate(other));
  return std::fabs(a - b) <= symmetry_tolerance_ * std::max(a, b);
}

// The pairs that every permutation must keep: all where there are few; otherwise, out of a sample,
// those that run slower together, which a wrong symmetry is most likely to break.
Result<std::vector<Profiler::Pair>> Profiler::telling_pairs(Set candidates,
                                                            const SymmetryCheck& check) {
  std::vector<Pair> pairs;
  const size_t count = candidates.size();
  const bool all = count * (count - 1) / 2 <= static_cast<size_t>(check.all_pairs_max);
  for (size_t a = 0; all && a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      if (fit_one_ring(candidates[a], candidates[b]))
        pairs.push_back({candidates[a], candidates[b]});
    }
  }
  Rng rng(derive_key(check.seed, "symmetry collisions"));
  for (int32_t i = 0; i < check.sample && !all; ++i) {
    const Pair pair{candidates[rng.below(count)], candidates[rng.below(count)]};
    if (!fit_one_ring(pair[0], pair[1])) continue;
    JIGE_TRY(const double together, rate(pair));
    JIGE_TRY(const double first, rate(std::span(pair).first(1)));
    JIGE_TRY(const double second, rate(std::span(pair).last(1)));
    if (together < std::min(first, second) * (1 - 2 * check.tolerance)) pairs.push_back(pair);
    if (static_cast<int32_t>(pairs.size()) >= check.pairs) break;
  }
  return pairs;
}

Result<bool> Profiler::confirms(const Permutation& permutation, Set candidates,
                                std::span<const Pair> telling, const SymmetryCheck& check) {
  std::vector<Transfer> moved;
  for (const Transfer& t : candidates) {
    if (image(permutation, t) == t) continue;
    moved.push_back(t);
    JIGE_TRY(const bool same, agrees(permutation, std::span(&t, 1)));
    if (!same) return false;
  }
  if (moved.empty()) return true;
  for (const Pair& pair : telling) {
    JIGE_TRY(const bool same, agrees(permutation, pair));
    if (!same) return false;
  }
  Rng rng(derive_key(check.seed, "symmetry pairs"));
  for (int32_t i = 0; i < check.pairs; ++i) {
    const Pair pair{moved[rng.below(moved.size())], candidates[rng.below(candidates.size())]};
    if (!fit_one_ring(pair[0], pair[1])) continue;
    JIGE_TRY(const bool same, agrees(permutation, pair));
    if (!same) return false;
  }
  return true;
}

Status Profiler::use_symmetry(Symmetry symmetry, Set candidates, const SymmetryCheck& check) {
  symmetry_ = no_symmetry(topology_);  // while it is confirmed, every set counts for itself
  symmetry_tolerance_ = check.tolerance;
  const size_t count_max = symmetry.permutations.size();
  Symmetry confirmed = symmetry_;
  JIGE_TRY(const std::vector<Pair> telling, telling_pairs(candidates, check));
  int32_t failures = 0;
  for (const Permutation& permutation : symmetry.permutations) {
    if (failures >= check.failures_max || confirmed.permutations.size() >= count_max) break;
    if (confirmed.contains(permutation)) continue;
    JIGE_TRY(const bool holds, confirms(permutation, candidates, telling, check));
    if (holds) {
      confirmed.extend(permutation, count_max);
    } else {
      ++failures;
    }
  }
  symmetry_ = std::move(confirmed);
  canonical_.clear();
  return {};
}

}  // namespace jige::profile
