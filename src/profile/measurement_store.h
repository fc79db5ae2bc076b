// What was measured, kept: in memory, and in a file of JSON lines that only grows.
//
//   {"format":"jige.link-profile","version":1,"source":"simulated","fingerprint":"…","facts":[…]}
//   {"set":["gpu0>gpu1:push","gpu1>gpu0:push"],"rate":11.9,"gb_per_s":[12.1,11.9],
//    "deviation":0.01,"half_width":0.006,"repeats":9,"cost_s":0.028}
//   {"invalid":"gpu0>gpu1:push was 12.1, is 6.0 GB/s"}
//
// A member that met no link with a rate has null for its own ("gb_per_s":[null,11.9]).
// A set is named by its transfers in the order of their text, with the part of a whole that each
// carried where these differed ("0.25 of gpu0>gpu1:push"). A later line of the same set replaces
// the earlier one; an "invalid" line all before it. A file that ends in the middle of a line was
// interrupted: that line goes, the rest stays, and profiling resumes. A file of another fingerprint
// or source is refused with the difference.
//
// Invariants: members of a Measurement stand in the order of the set's text form.
// Threads: one caller; one process a file (an advisory lock holds others off).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "profile/link_meter.h"
#include "topology/topology.h"

namespace jige::profile {

// Transfers as a set: in the order of their text, which is how it is kept.
std::vector<std::string> set_names(const topology::Topology& topology,
                                   std::span<const topology::Transfer> set);

class MeasurementStore {
 public:
  // Creates the file, or resumes it. Fails with kInvalidArgument on another fingerprint or source,
  // kCorrupt (with the line) on what is no profile, kUnavailable while another process has it.
  static Result<MeasurementStore> open(const std::string& path, const topology::Topology& topology,
                                       std::string_view source);
  MeasurementStore(MeasurementStore&& other) noexcept;
  MeasurementStore& operator=(MeasurementStore&& other) noexcept;
  ~MeasurementStore();

  using Key = std::vector<std::string>;
  const std::map<Key, Measurement>& all() const { return all_; }
  // Whether the file ended in the middle of a line when it was opened.
  bool was_interrupted() const { return interrupted_; }

  // Appends a line.
  Status append(const Key& set, const Measurement& measurement);
  // From here on nothing measured before counts.
  Status invalidate(std::string_view reason);

 private:
  MeasurementStore() = default;
  Status read(const std::string& text, const topology::Topology& topology, std::string_view source);
  Status write_line(const std::string& line);

  std::string path_;
  int fd_ = -1;
  bool interrupted_ = false;
  std::map<Key, Measurement> all_;
};

}  // namespace jige::profile
