#include "api/token_lists.h"

#include <string>

namespace jige::api {

bool is_id_list(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

ApiResult<std::vector<int32_t>> read_id_list(const Json& list, int32_t vocab_size,
                                             std::string_view param) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& item : list) {
    const std::optional<int64_t> id = as_integer(item);
    if (!id || *id < 0 || *id >= vocab_size) {
      return tl::unexpected(bad_field(std::string(param),
                                      "{}: token ids are from 0 to {}, found {}", param,
                                      vocab_size - 1, shown_value(item)));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace jige::api
