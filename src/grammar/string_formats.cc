#include "grammar/string_formats.h"

#include <initializer_list>

namespace jige::grammar {
namespace {

// Years from 0001, as most libraries have them.
constexpr std::string_view kYear = R"((\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000))";
constexpr std::string_view kLeapYear =
    R"((\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00))";
constexpr std::string_view kMonthAndDay =
    R"(((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|)"
    R"(02-(0[1-9]|1\d|2[0-8])))";
constexpr std::string_view kTime =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kHours =
    R"(T(\d{1,4}H(\d{1,4}M(\d{1,4}S)?)?|\d{1,4}M(\d{1,4}S)?|\d{1,4}S))";
constexpr std::string_view kLabel = R"([A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2})";
constexpr std::string_view kOctet = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

std::string join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string date() { return join({"(", kYear, "-", kMonthAndDay, "|", kLeapYear, "-02-29)"}); }

}  // namespace

std::optional<std::string> format_expression(std::string_view format) {
  if (format == "date") return date();
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return join({date(), "T", kTime});
  if (format == "duration") return join({R"(P(\d{1,4}D()", kHours, ")?|", kHours, ")"});
  if (format == "uuid") return "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
  if (format == "hostname") return join({kLabel, R"((\.)", kLabel, "){0,3}"});
  if (format == "email") {
    return join({R"([A-Za-z0-9_+-]{1,30}(\.[A-Za-z0-9_+-]{1,30}){0,1}@()", kLabel,
                 R"(\.){1,3}[A-Za-z]{2,12})"});
  }
  if (format == "ipv4") return join({"(", kOctet, R"(\.){3})", kOctet});
  if (format == "ipv6") return "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}";
  return std::nullopt;
}

}  // namespace jige::grammar
