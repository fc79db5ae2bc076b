// Choices of a training schedule as flags name them.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/pipeline_generate.h"

namespace jige::cli {

// "auto" and every schedule's name.
inline std::vector<std::string> schedule_choices() {
  std::vector<std::string> names{"auto"};
  for (int k = 0; k < plan::kScheduleKindCount; ++k) {
    names.emplace_back(plan::schedule_name(static_cast<plan::ScheduleKind>(k)));
  }
  return names;
}

// The enumerator whose name is `name`; nothing, which allows all, for "auto".
template <typename Enum>
std::vector<Enum> chosen(const std::string& name, std::string_view (*name_of)(Enum), int count) {
  std::vector<Enum> list;
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) list.push_back(static_cast<Enum>(i));
  }
  return list;
}

// Whether `name` is the one that means yes; nothing for "auto".
inline std::vector<bool> switched(const std::string& name, std::string_view yes) {
  return name == "auto" ? std::vector<bool>{} : std::vector<bool>{name == yes};
}

}  // namespace jige::cli
