#include "cli/route_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/printable.h"
#include "cli/table.h"

namespace jige::cli {
namespace {

double number_in(const Json& object, const char* field) {
  const Json* found = find_field(object, field);
  return found && found->is_number() ? found->get<double>() : 0;
}

std::string text_in(const Json& object, const char* field) {
  const Json* found = find_field(object, field);
  return found && found->is_string() ? printable(found->get<std::string>()) : std::string();
}

std::vector<std::string> server_cells(const Json& server) {
  const auto whole = [&](const char* field) {
    return fmt::format("{:.0f}", number_in(server, field));
  };
  const auto ms = [&](const char* field) {
    return fmt::format("{:.0f}", number_in(server, field) * 1e3);
  };
  const auto times = [&](const char* field) {
    return fmt::format("{:.2f}", number_in(server, field));
  };
  const double prompts = number_in(server, "prompt_tokens_total");
  const double known = prompts > 0 ? number_in(server, "known_tokens_total") / prompts : 0;
  return {text_in(server, "address"),
          text_in(server, "state"),
          whole("requests"),
          whole("other_requests"),
          whole("work_tokens"),
          times("prompt_speed"),
          times("answer_speed"),
          whole("requests_total"),
          whole("retries_total"),
          whole("refused_total"),
          whole("failed_total"),
          fmt::format("{:.0f} %", known * 100),
          ms("first_byte_seconds_p50"),
          ms("first_byte_seconds_p99")};
}

}  // namespace

bool is_router(const Json& top) {
  const Json* router = find_field(top, "router");
  return router && router->is_boolean() && router->get<bool>();
}

std::string render_router(const Json& top, const TopView& view) {
  using enum Table::Align;
  std::string frame = fmt::format(
      "router  {}, policy {}\nat servers {:.0f}, waiting {:.0f}; answers of {:.0f} tokens\n\n",
      view.address, text_in(top, "policy"), number_in(top, "running"),
      number_in(top, "waiting_requests"), number_in(top, "expected_answer_tokens"));
  Table table({{"server"},
               {"state"},
               {"now", kRight},
               {"others", kRight},
               {"work", kRight},
               {"read x", kRight},
               {"answer x", kRight},
               {"requests", kRight},
               {"retries", kRight},
               {"refused", kRight},
               {"failed", kRight},
               {"known", kRight},
               {"first p50", kRight},
               {"p99 ms", kRight}});
  std::string troubles;
  if (const Json* servers = find_field(top, "servers"); servers && servers->is_array()) {
    for (const Json& server : *servers) {
      table.row(server_cells(server));
      if (text_in(server, "state") != "down") continue;
      troubles += fmt::format("{}: {}\n", text_in(server, "address"), text_in(server, "trouble"));
    }
  }
  frame += table.render() + troubles;
  std::string cut;
  int rows = 0;
  for (size_t begin = 0; begin < frame.size() && rows < view.rows_max - 1; ++rows) {
    const size_t end = std::min(frame.find('\n', begin), frame.size());
    cut += cut_to_columns(frame.substr(begin, end - begin), static_cast<size_t>(view.columns_max));
    cut += '\n';
    begin = end + 1;
  }
  return cut;
}

}  // namespace jige::cli
