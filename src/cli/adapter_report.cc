#include "cli/adapter_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"

namespace jige::cli {

std::string adapters_text(model::InferenceModel& model,
                          const std::vector<model::AdapterSource>& adapters,
                          const std::string& root, const model::InferenceMemory& memory) {
  std::string text;
  for (size_t i = 0; i < adapters.size(); ++i) {
    text += fmt::format("adapter \"{}\": rank {}, {}, {}\n", adapters[i].name,
                        model.adapters()[i].rank_max(), format_bytes(memory.adapters_bytes[i]),
                        adapters[i].folder);
  }
  if (const int64_t rooms = model.adapter_rooms().room_count(); rooms > 0) {
    text +=
        fmt::format("room for {} adapters of {}, up to rank {}, each {}\n", rooms, root,
                    model.adapter_rooms().rank_max(), format_bytes(memory.adapters_bytes.back()));
  }
  return text;
}

Json adapters_json(const model::InferenceModel& model,
                   const std::vector<model::AdapterSource>& adapters,
                   const model::InferenceMemory& memory) {
  Json list = Json::array();
  for (size_t i = 0; i < adapters.size(); ++i) {
    list.push_back({{"name", adapters[i].name},
                    {"folder", adapters[i].folder},
                    {"rank", model.adapters()[i].rank_max()},
                    {"bytes", memory.adapters_bytes[i]}});
  }
  return list;
}

Json rooms_json(model::InferenceModel& model, const std::string& root,
                const model::InferenceMemory& memory) {
  const int64_t rooms = model.adapter_rooms().room_count();
  if (rooms == 0) return nullptr;
  return {{"root", root},
          {"count", rooms},
          {"rank_max", model.adapter_rooms().rank_max()},
          {"bytes", memory.adapters_bytes.back()}};
}

}  // namespace jige::cli
