#include "cli/ring_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "formats/json_file.h"

namespace jige::cli {
namespace {

// The object in a field of an object.
Result<Json> part_of(const Json& json, const char* field, const std::string& where) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_object()) {
    return fail(Code::kCorrupt, "{}: has no object \"{}\"; it must be a plan of `jige plan rings`",
                where, field);
  }
  return *found;
}

Result<std::vector<std::string>> order_of(const Json& ring, const std::string& where) {
  const auto found = ring.find("order");
  const bool names = found != ring.end() && found->is_array() &&
                     std::ranges::all_of(*found, [](const Json& name) { return name.is_string(); });
  if (!names) return fail(Code::kCorrupt, "{}: \"order\" is no list of names", where);
  return found->get<std::vector<std::string>>();
}

}  // namespace

bool is_ring_file(const std::string& text) { return text.ends_with(".json"); }

Result<comm::Ring> read_ring_file(const std::string& path) {
  JIGE_TRY(const Json json, formats::load_json_object(path));
  JIGE_TRY(const Json planned, part_of(json, "ring", path));
  JIGE_TRY(const Json baselines, part_of(json, "baselines", path));
  JIGE_TRY(const Json by_rank, part_of(baselines, "rank order", path + ": baselines"));
  JIGE_TRY(const auto order, order_of(planned, path + ": ring"));
  JIGE_TRY(const auto names, order_of(by_rank, path + ": rank order"));
  comm::Ring ring;
  for (const std::string& name : order) {
    const auto rank = std::ranges::find(names, name);
    if (rank == names.end()) {
      return fail(Code::kCorrupt, "{}: \"{}\" is in the ring, but has no rank", path, name);
    }
    ring.order.push_back(static_cast<int>(rank - names.begin()));
  }
  return ring;
}

}  // namespace jige::cli
