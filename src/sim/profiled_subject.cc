#include "sim/profiled_subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "sim/json_fields.h"

namespace jige::sim {
namespace {

constexpr int64_t kSubjectCountMax = int64_t{1} << 50;

template <typename T>
struct SubjectField {
  const char* name;
  T member;
};

constexpr SubjectField<std::string ProfiledMachine::*> kMachineTexts[] = {
    {"processor", &ProfiledMachine::processor},
    {"kernels", &ProfiledMachine::kernels},
    {"device", &ProfiledMachine::device}};
constexpr SubjectField<int64_t ProfiledMachine::*> kMachineCounts[] = {
    {"processors", &ProfiledMachine::processors}, {"threads", &ProfiledMachine::threads}};
constexpr SubjectField<std::string ProfiledModel::*> kModelTexts[] = {
    {"name", &ProfiledModel::name},
    {"compute", &ProfiledModel::compute},
    {"weights", &ProfiledModel::weights},
    {"kv_cache", &ProfiledModel::kv_cache}};
constexpr SubjectField<int64_t ProfiledModel::*> kModelCounts[] = {
    {"parameters", &ProfiledModel::parameters},
    {"layers", &ProfiledModel::layers},
    {"width", &ProfiledModel::width},
    {"vocabulary", &ProfiledModel::vocabulary},
    {"context", &ProfiledModel::context}};
template <typename Owner, typename Texts, typename Counts>
Json identity_json(const Owner& owner, const Texts& texts, const Counts& counts) {
  Json json = Json::object();
  for (const auto& text : texts) json[text.name] = owner.*text.member;
  for (const auto& count : counts) json[count.name] = owner.*count.member;
  return json;
}

template <typename Owner, typename Texts, typename Counts>
Status read_identity(const Json& json, std::string_view name, std::string_view where,
                     const Texts& texts, const Counts& counts, Owner& owner) {
  JIGE_TRY(const Json* const found, object_in(json, name, where));
  const std::string place = fmt::format("{}: {}", where, name);
  for (const auto& text : texts) {
    JIGE_TRY(owner.*text.member, get_string(*found, text.name, place));
  }
  for (const auto& count : counts) {
    JIGE_TRY(owner.*count.member, count_in(*found, count.name, 0, kSubjectCountMax, place));
  }
  return {};
}

// What differs is appended, as far as it is of the same fields.
template <typename Owner, typename Fields>
void compare(const Owner& profiled, const Owner& now, const Fields& fields,
             std::vector<std::string>& differences) {
  for (const auto& field : fields) {
    const auto& then = profiled.*field.member;
    const auto& is = now.*field.member;
    if (then != is) differences.push_back(fmt::format("{}: {}, now {}", field.name, then, is));
  }
}

}  // namespace

void add_subject(const ProfiledSubject& subject, Json& json) {
  json["machine"] = identity_json(subject.machine, kMachineTexts, kMachineCounts);
  json["model"] = identity_json(subject.model, kModelTexts, kModelCounts);
}

Result<ProfiledSubject> subject_in(const Json& json, std::string_view where) {
  ProfiledSubject subject;
  JIGE_DO(read_identity(json, "machine", where, kMachineTexts, kMachineCounts, subject.machine));
  JIGE_DO(read_identity(json, "model", where, kModelTexts, kModelCounts, subject.model));
  return subject;
}

bool same_shape(const ProfiledModel& one, const ProfiledModel& other) {
  return std::ranges::all_of(kModelCounts, [&](const auto& field) {
    return field.member == &ProfiledModel::context || one.*field.member == other.*field.member;
  });
}

std::vector<std::string> differences(const ProfiledSubject& profiled, const ProfiledSubject& now) {
  std::vector<std::string> found;
  compare(profiled.machine, now.machine, kMachineTexts, found);
  compare(profiled.machine, now.machine, kMachineCounts, found);
  compare(profiled.model, now.model, std::span(kModelTexts).subspan(1), found);
  return found;
}

}  // namespace jige::sim
