#include "profile/measurement_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "topology/fingerprint.h"

namespace jige::profile {
namespace {

constexpr std::string_view kFormat = "jige.link-profile";
constexpr int64_t kVersion = 1;
constexpr size_t kStoreBytesMax = size_t{1} << 30;
constexpr size_t kDifferencesShown = 6;
// GB/s; what lies outside no link has, and planners would divide by it.
constexpr double kRateMin = 1e-9, kRateMax = 1e9;

bool is_rate(double rate) { return rate >= kRateMin && rate <= kRateMax; }

Json to_json(const MeasurementStore::Key& set, const Measurement& m) {
  return {{"set", set},
          {"rate", m.rate},
          {"gb_per_s", m.gb_per_s},
          {"deviation", m.deviation},
          {"half_width", m.half_width},
          {"repeats", m.repeats},
          {"cost_s", m.cost_s}};
}

Result<std::pair<MeasurementStore::Key, Measurement>> from_json(const Json& json,
                                                                std::string_view where) {
  MeasurementStore::Key set;
  Measurement m;
  const auto names = json.find("set");
  const auto rates = json.find("gb_per_s");
  const bool lists = names != json.end() && names->is_array() && !names->empty() &&
                     rates != json.end() && rates->is_array() && rates->size() == names->size();
  if (!lists) {
    return fail(Code::kCorrupt, "{}: \"set\" and \"gb_per_s\" must be lists of one length", where);
  }
  for (size_t i = 0; i < names->size(); ++i) {
    const Json& rate = (*rates)[i];
    if (!(*names)[i].is_string() || !(rate.is_number() || rate.is_null())) {
      return fail(Code::kCorrupt, "{}: \"set\" holds names, \"gb_per_s\" numbers", where);
    }
    set.push_back((*names)[i].get<std::string>());
    m.gb_per_s.push_back(rate.is_null() ? topology::kUnlimited : rate.get<double>());
    if (!rate.is_null() && !is_rate(m.gb_per_s.back())) {
      return fail(Code::kCorrupt, "{}: {} in field \"gb_per_s\" is no rate of a link", where,
                  m.gb_per_s.back());
    }
  }
  JIGE_TRY(m.rate, get_number(json, "rate", where));
  JIGE_TRY(m.deviation, get_number_or(json, "deviation", 0, where));
  JIGE_TRY(m.half_width, get_number_or(json, "half_width", 0, where));
  JIGE_TRY(const int64_t repeats, get_int_or(json, "repeats", 1, where));
  JIGE_TRY(m.cost_s, get_number_or(json, "cost_s", 0, where));
  m.repeats = static_cast<int32_t>(std::clamp<int64_t>(repeats, 0, 1 << 30));
  if (!is_rate(m.rate)) {
    return fail(Code::kCorrupt, "{}: field \"rate\" is {}, must be {} to {}", where, m.rate,
                kRateMin, kRateMax);
  }
  return std::pair(std::move(set), std::move(m));
}

Status check_head(const Json& head, const topology::Topology& topology, std::string_view source,
                  const std::string& path) {
  JIGE_TRY(const std::string format, get_string(head, "format", path));
  JIGE_TRY(const int64_t version, get_int(head, "version", path));
  if (format != kFormat || version != kVersion) {
    return fail(Code::kUnsupported,
                "{}: is \"{}\" version {}, this program reads \"{}\" version {}", path, format,
                version, kFormat, kVersion);
  }
  JIGE_TRY(const std::string theirs, get_string(head, "source", path));
  if (theirs != source) {
    return fail(Code::kInvalidArgument, "{}: holds {} rates, these are {}; use another file", path,
                theirs, source);
  }
  JIGE_TRY(const std::string hash, get_string(head, "fingerprint", path));
  const topology::Fingerprint ours = topology::fingerprint(topology.description());
  if (hash == ours.hash) return {};
  std::vector<std::string> facts;
  if (const auto list = head.find("facts"); list != head.end() && list->is_array()) {
    for (const Json& fact : *list) {
      if (fact.is_string()) facts.push_back(fact.get<std::string>());
    }
  }
  std::vector<std::string> lines = topology::difference(facts, ours.facts);
  if (lines.empty() && !facts.empty()) return {};  // one knows more, nothing else
  const size_t hidden = lines.size() - std::min(lines.size(), kDifferencesShown);
  lines.resize(lines.size() - hidden);
  return fail(Code::kInvalidArgument,
              "{}: was measured on fingerprint {}, this is {}; measure anew into another file. "
              "What differs:\n{}{}",
              path, hash, ours.hash, fmt::join(lines, "\n"),
              hidden > 0 ? fmt::format("\nand {} lines more", hidden) : "");
}

tl::unexpected<Error> cannot_open(const std::string& path, int reason) {
  if (reason == EISDIR) return fail(Code::kInvalidArgument, "{}: is a folder; name a file", path);
  if (reason == ENOENT) {
    return fail(Code::kNotFound, "{}: there is no folder to write it to; make it first", path);
  }
  return fail(Code::kIo, "{}: {}", path, std::strerror(reason));
}

}  // namespace

std::vector<std::string> set_names(const topology::Topology& topology,
                                   std::span<const topology::Transfer> set) {
  std::vector<std::string> names;
  for (const topology::Transfer& t : set) names.push_back(topology::transfer_text(topology, t));
  std::ranges::sort(names);
  return names;
}

MeasurementStore::MeasurementStore(MeasurementStore&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      interrupted_(other.interrupted_),
      all_(std::move(other.all_)) {}

MeasurementStore& MeasurementStore::operator=(MeasurementStore&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(interrupted_, other.interrupted_);
  std::swap(all_, other.all_);
  return *this;
}

MeasurementStore::~MeasurementStore() {
  if (fd_ >= 0) ::close(fd_);
}

Result<MeasurementStore> MeasurementStore::open(const std::string& path,
                                                const topology::Topology& topology,
                                                std::string_view source) {
  MeasurementStore store;
  store.path_ = path;
  store.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (store.fd_ < 0) return cannot_open(path, errno);
  struct stat info {};
  if (::fstat(store.fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail(Code::kInvalidArgument, "{}: is no file that keeps what is written; name one",
                path);
  }
  if (::flock(store.fd_, LOCK_EX | LOCK_NB) != 0) {
    return fail(Code::kUnavailable, "{}: another process is writing it; wait or use another file",
                path);
  }
  JIGE_TRY(std::string text, read_file(path, kStoreBytesMax));
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) {
    // Only what looks like a profile is cut; any other file stays as it is.
    const std::string begin = fmt::format(R"({{"format":"{}",)", kFormat);
    const bool ours = std::string_view(text).substr(0, begin.size()) ==
                      std::string_view(begin).substr(0, text.size());
    if (!ours) return fail(Code::kCorrupt, "{}: is no link profile", path);
    text.resize(whole);
    store.interrupted_ = true;
  }
  if (!text.empty()) JIGE_DO(store.read(text, topology, source));
  if (store.interrupted_ && ::ftruncate(store.fd_, static_cast<off_t>(whole)) != 0) {
    return fail(Code::kIo, "{}: {}", path, std::strerror(errno));
  }
  if (text.empty()) {
    const topology::Fingerprint print = topology::fingerprint(topology.description());
    JIGE_DO(store.write_line(dump_json({{"format", kFormat},
                                        {"version", kVersion},
                                        {"source", source},
                                        {"fingerprint", print.hash},
                                        {"facts", print.facts}})));
  }
  return store;
}

Status MeasurementStore::read(const std::string& text, const topology::Topology& topology,
                              std::string_view source) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string where = fmt::format("{}:{}", path_, ++number);
    JIGE_TRY(const Json json, parse_json(std::string_view(text).substr(begin, end - begin), where));
    begin = end + 1;
    if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
    if (number == 1) {
      JIGE_DO(check_head(json, topology, source, path_));
    } else if (json.contains("invalid")) {
      all_.clear();
    } else {
      JIGE_TRY(auto entry, from_json(json, where));
      all_.insert_or_assign(std::move(entry.first), std::move(entry.second));
    }
  }
  return {};
}

// A line that does not fit is taken back, so that the next one does not begin in its middle.
Status MeasurementStore::write_line(const std::string& line) {
  const std::string text = line + "\n";
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      const bool cut = done == 0 || (before >= 0 && ::ftruncate(fd_, before) == 0);
      return fail(error == ENOSPC || error == EDQUOT ? Code::kExhausted : Code::kIo, "{}: {}{}",
                  path_, std::strerror(error),
                  cut ? "" : "; half a line is left at its end, remove it");
    }
    done += static_cast<size_t>(written);
  }
  return {};
}

Status MeasurementStore::append(const Key& set, const Measurement& measurement) {
  JIGE_DO(write_line(dump_json(to_json(set, measurement))));
  all_.insert_or_assign(set, measurement);
  return {};
}

Status MeasurementStore::invalidate(std::string_view reason) {
  JIGE_DO(write_line(dump_json({{"invalid", reason}})));
  all_.clear();
  return {};
}

}  // namespace jige::profile
