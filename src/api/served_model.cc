#include "api/served_model.h"

namespace jige::api {

std::optional<ChosenAdapter> ServedModel::find(std::string_view wanted) const {
  if (wanted == name) return ChosenAdapter();
  const std::optional<ServedAdapter> found = adapters->find(wanted);
  if (!found) return std::nullopt;
  return ChosenAdapter{.number = found->number, .lease = found->lease};
}

std::string ServedModel::name_of(int32_t adapter) const {
  return adapter == model::kNoAdapter ? name : adapters->name_of(adapter);
}

std::string ServedModel::fingerprint_of(int32_t adapter) const {
  return adapter == model::kNoAdapter ? fingerprint : adapters->fingerprint_of(adapter);
}

}  // namespace jige::api
