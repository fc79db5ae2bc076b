#include "api/served_model.h"

#include <algorithm>

namespace jige::api {

std::optional<int32_t> ServedModel::find(std::string_view wanted) const {
  if (wanted == name) return model::kNoAdapter;
  const auto found = std::ranges::find(adapters, wanted, &ServedAdapter::name);
  if (found == adapters.end()) return std::nullopt;
  return static_cast<int32_t>(found - adapters.begin());
}

const std::string& ServedModel::name_of(int32_t adapter) const {
  return adapter == model::kNoAdapter ? name : adapters[static_cast<size_t>(adapter)].name;
}

const std::string& ServedModel::fingerprint_of(int32_t adapter) const {
  return adapter == model::kNoAdapter ? fingerprint
                                      : adapters[static_cast<size_t>(adapter)].fingerprint;
}

}  // namespace jige::api
