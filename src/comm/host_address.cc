#include "comm/host_address.h"

#include <string>

namespace jige::comm {

Result<Address> parse_host_address(std::string_view text, int usual_port, std::string_view where) {
  Address address{std::string(text), usual_port};
  if (text.find(':') != std::string_view::npos) {
    auto parsed = parse_address(text);
    if (!parsed) return with_context(std::move(parsed.error()), "{}", where);
    address = std::move(*parsed);
  }
  if (address.host.empty() || address.host.size() > 255) {
    return fail(Code::kInvalidArgument, "{}: \"{}\" is no ADDRESS[:PORT]", where, text);
  }
  return address;
}

}  // namespace jige::comm
