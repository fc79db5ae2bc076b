#include "comm/ring_plan_file.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace jige::comm {
namespace {

constexpr std::string_view kRingPlanFormat = "jige.ring-plan";
constexpr int64_t kVersion = 1;
constexpr int64_t kFileBytesMax = 16 << 20;

Result<const Json*> list_of(const Json& json, std::string_view field, std::string_view where) {
  const auto list = json.find(field);
  if (list == json.end() || !list->is_array()) {
    return fail(Code::kCorrupt,
                "{}: has no list \"{}\"; write it anew with `jige plan rings -o FILE`", where,
                field);
  }
  return &*list;
}

// Ranks, or from -1 on.
Result<std::vector<int>> numbers_of(const Json& list, int64_t least, std::string_view field,
                                    std::string_view where) {
  std::vector<int> ranks;
  for (const Json& rank : list) {
    const int64_t number = rank.is_number_integer() ? rank.get<int64_t>() : least - 1;
    if (number < least || number > std::numeric_limits<int>::max()) {
      return fail(Code::kCorrupt, "{}: \"{}\" must hold ranks, not {}", where, field,
                  dump_json(rank));
    }
    ranks.push_back(static_cast<int>(number));
  }
  return ranks;
}

// The list of ranks in a field of an object of a list.
Result<std::vector<int>> ranks_of(const Json& json, std::string_view field,
                                  std::string_view where) {
  if (!json.is_object()) {
    return fail(Code::kCorrupt, "{}: rings, rounds and trees must be objects with \"{}\"", where,
                field);
  }
  JIGE_TRY(const Json* list, list_of(json, field, where));
  return numbers_of(*list, 0, field, where);
}

// Parents by place become parents by rank.
Result<TreePair> trees_of(const Json& json, int size, std::string_view where) {
  JIGE_TRY(const std::vector<int> order, ranks_of(json, "order", where));
  if (Status checked = check_permutation(order, size, "trees"); !checked) {
    return with_context(std::move(checked.error()), "{}", where);
  }
  JIGE_TRY(const Json* parents, list_of(json, "parents", where));
  TreePair trees;
  if (parents->size() != trees.parent.size()) {
    return fail(Code::kCorrupt, "{}: \"parents\" must hold those of two trees", where);
  }
  for (size_t t = 0; t < trees.parent.size(); ++t) {
    if (!(*parents)[t].is_array() || (*parents)[t].size() != order.size()) {
      return fail(Code::kCorrupt, "{}: \"parents\" must hold one for each of {} places", where,
                  order.size());
    }
    JIGE_TRY(const std::vector<int> by_place, numbers_of((*parents)[t], -1, "parents", where));
    trees.parent[t].resize(order.size());
    for (size_t place = 0; place < order.size(); ++place) {
      const int above = by_place[place];
      if (above >= size) {
        return fail(Code::kCorrupt, "{}: \"parents\" names place {} of {}", where, above, size);
      }
      trees.parent[t][static_cast<size_t>(order[place])] =
          above < 0 ? -1 : order[static_cast<size_t>(above)];
    }
  }
  JIGE_TRY(trees.bytes_max, get_int_or(json, "bytes_max", kTreesUnmeasured, where));
  return trees;
}

}  // namespace

Result<RingPlan> ring_plan_from_json(const Json& json, int size, std::string_view where) {
  JIGE_TRY(const std::string format, get_string(json, "format", where));
  JIGE_TRY(const int64_t version, get_int(json, "version", where));
  if (format != kRingPlanFormat || version != kVersion) {
    return fail(Code::kUnsupported,
                "{}: is \"{}\" version {}, this program reads \"{}\" version {}", where, format,
                version, kRingPlanFormat, kVersion);
  }
  JIGE_TRY(const Json* devices, list_of(json, "devices", where));
  if (devices->size() != static_cast<size_t>(size)) {
    return fail(Code::kInvalidArgument, "{}: was planned for {} devices, these are {} ranks", where,
                devices->size(), size);
  }
  RingPlan plan;
  JIGE_TRY(const Json* rings, list_of(json, "rings", where));
  for (const Json& item : *rings) {
    Ring& ring = plan.rings.emplace_back();
    JIGE_TRY(ring.order, ranks_of(item, "order", where));
    JIGE_TRY(ring.weight, get_number(item, "weight", where));
  }
  if (json.contains("rounds")) {
    JIGE_TRY(const Json* rounds, list_of(json, "rounds", where));
    for (const Json& item : *rounds) {
      JIGE_TRY(std::vector<int> targets, ranks_of(item, "to", where));
      plan.rounds.push_back(std::move(targets));
    }
  }
  if (json.contains("trees")) {
    JIGE_TRY(plan.trees, trees_of(json["trees"], size, where));
  }
  if (Status checked = plan.check(size); !checked) {
    return with_context(std::move(checked.error()), "{}", where);
  }
  return plan;
}

Result<RingPlan> load_ring_plan(const std::string& path, int size) {
  JIGE_TRY(const std::string text, read_file(path, kFileBytesMax));
  JIGE_TRY(const Json json, parse_json(text, path));
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", path);
  return ring_plan_from_json(json, size, path);
}

}  // namespace jige::comm
