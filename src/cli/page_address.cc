#include "cli/page_address.h"

#include <unistd.h>

#include "base/ascii.h"

namespace jige::cli {
namespace {

constexpr size_t kNameBytesMax = 256;

// Empty where the system does not say.
std::string machine_name() {
  char name[kNameBytesMax] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "";
  return lower_ascii(name);
}

}  // namespace

std::vector<std::string> names_of_machine(std::string_view host) {
  std::vector<std::string> names = {lower_ascii(host)};
  if (const std::string name = machine_name(); !name.empty()) {
    const std::string label = name.substr(0, name.find('.'));
    names.insert(names.end(), {name, label, label + ".local"});
  }
  return names;
}

std::string page_address(const std::string& address, std::string_view host) {
  const std::string name = machine_name();
  if (name.empty() || (host != "0.0.0.0" && host != "::")) return address + "/";
  return address.substr(0, address.find("//") + 2) + name + address.substr(address.rfind(':')) +
         "/";
}

}  // namespace jige::cli
