// The rate of any set of transfers: from the store, from a set that a confirmed symmetry makes
// equal, or measured now.
//
//   Profiler profiler(box, meter, store);           // the store may be null
//   JIGE_DO(profiler.use_symmetry(find_symmetry(box), candidates, {}));
//   JIGE_TRY(const double rate, profiler.rate(ring));
//
// Symmetry is believed only as far as measurement goes: use_symmetry builds it up from permutations
// under which every single transfer and a sample of pairs, above all of pairs that collide, ran as
// fast as their images. Of the
// answers that it then gives, some are measured after all; the first that is wrong ends it.
// measure() always measures.
//
// Every so often two sets are measured again, the first one and the largest one so far. If either
// changed, a link changed its rate or somebody else uses it: all rates are dropped, here and in the
// store. Then, and when symmetry turns out wrong, `epoch` rises, upon which whoever drew
// conclusions from rates draws them anew.
// Invariants: rates are positive. Threads: one caller.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "profile/link_meter.h"
#include "profile/measurement_store.h"
#include "profile/symmetry.h"

namespace jige::profile {

struct SymmetryCheck {
  double tolerance = 0.05;      // of two rates that should be equal, relative
  int32_t all_pairs_max = 500;  // up to this many pairs, all are compared
  int32_t sample = 40;          // otherwise so many are searched for collisions
  int32_t pairs = 8;            // collisions, and as many others, that every permutation must keep
  int32_t failures_max = 24;    // permutations that fail before the rest is given up
  uint64_t seed = 1;
};

struct ProfilerOptions {
  int32_t check_every = 100;  // measurements between two such looks; 0: never
  bool check_stored = false;  // look before the first measurement whether the store still holds
  double change_tolerance = 0.15;
  int32_t audit_every = 50;  // answers by symmetry of which one is measured; 0: none
};

struct ProfilerCounts {
  int64_t measured = 0;     // sets that the meter ran
  int64_t recalled = 0;     // answers from what was measured
  int64_t by_symmetry = 0;  // of those, through another set
  double cost_s = 0;        // what the meter's runs took, and what was spent beside them
};

class Profiler {
 public:
  using Set = std::span<const topology::Transfer>;

  // What the store holds of this topology's transfers is known from the start. The references
  // outlive the profiler.
  Profiler(const topology::Topology& topology, LinkMeter& meter, MeasurementStore* store = nullptr,
           ProfilerOptions options = {});

  // See above. Images of candidates are measured too, where they are none themselves.
  Status use_symmetry(Symmetry symmetry, Set candidates, const SymmetryCheck& check);

  Result<double> rate(Set set);
  // Measures now, whatever is known, and keeps the result. Members are in the order of `set`.
  Result<Measurement> measure(Set set);
  // Measures now, each member with its share of a whole (link_meter.h), and keeps the result.
  Result<Measurement> measure_shares(Set set, std::span<const double> shares);
  // The same from what was measured before, otherwise now: an interrupted search finds its way
  // back.
  Result<Measurement> shares(Set set, std::span<const double> shares);

  // Counts what the meter was used for beside sets, such as collectives.
  void spend(double seconds) { counts_.cost_s += seconds; }

  // Called after every set that the meter ran, with counts() brought up to date; empty: nobody is.
  void on_measured(std::function<void()> call) { on_measured_ = std::move(call); }

  const Symmetry& symmetry() const { return symmetry_; }
  const ProfilerCounts& counts() const { return counts_; }
  int32_t epoch() const { return epoch_; }
  // Whether an answer by symmetry was found wrong.
  bool symmetry_failed() const { return symmetry_failed_; }
  const std::string& last_change() const { return last_change_; }
  std::string_view source() const { return meter_.source(); }
  const topology::Topology& topology() const { return topology_; }

 private:
  // What is measured again to see whether rates still hold.
  struct Sentinel {
    std::vector<topology::Transfer> set;
    double rate;
  };

  static std::string key_of(std::vector<topology::Transfer> set);
  void count(const Measurement& m);
  std::vector<std::string> names_of(Set set, std::span<const double> shares) const;
  void watch(Set set, double rate);
  // After a measurement, where such a look is due. Whether rates have changed.
  Result<bool> have_changed();
  Status look_for_change();
  bool audit_is_due();
  Result<double> audited(Set set, double expected);
  using Pair = std::array<topology::Transfer, 2>;
  Result<std::vector<Pair>> telling_pairs(Set candidates, const SymmetryCheck& check);
  Result<bool> agrees(const Permutation& permutation, Set set);
  Result<bool> confirms(const Permutation& permutation, Set candidates,
                        std::span<const Pair> telling, const SymmetryCheck& check);
  Status keep(Set set, const Measurement& measurement);

  const topology::Topology& topology_;
  LinkMeter& meter_;
  MeasurementStore* store_;
  ProfilerOptions options_;
  Symmetry symmetry_;
  double symmetry_tolerance_ = 0;
  int32_t since_audit_ = 0;
  bool symmetry_failed_ = false;
  ProfilerCounts counts_;
  std::function<void()> on_measured_;
  std::unordered_map<std::string, double> exact_;        // by the set itself
  std::unordered_map<std::string, double> canonical_;    // by its canonical image
  std::map<MeasurementStore::Key, Measurement> shared_;  // of unequal amounts, by name
  std::vector<Sentinel> sentinels_;  // the first set, then the largest if it is another
  int32_t since_look_ = 0;
  int32_t epoch_ = 0;
  std::string last_change_;
};

}  // namespace jige::profile
