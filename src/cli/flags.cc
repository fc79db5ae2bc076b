#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "cli/flags_help.h"
#include "cli/suggest.h"

namespace jige::cli {
namespace {

// Values one flag takes; CLI11 treats larger numbers, and -1, in ways of their own.
constexpr int kValuesMax = 1'000'000;

// What a specification such as "-p,--prompt TEXT..." says.
struct Spec {
  std::string names;    // "-p,--prompt" or "FOLDER"
  std::string metavar;  // "TEXT", empty for toggles and positional arguments
  std::string shown;    // the name errors use: "--prompt" or "FOLDER"
  bool positional = false;
  bool optional = false;
  bool several = false;
};

Spec read_spec(std::string_view text) {
  Spec spec;
  std::string_view rest = text;
  if (rest.ends_with("...")) {
    spec.several = true;
    rest.remove_suffix(3);
  }
  spec.positional = !rest.starts_with("-");
  if (spec.positional) {
    spec.optional = rest.starts_with("[");
    if (spec.optional) rest = rest.substr(1, rest.size() - 2);
    spec.names = rest;
    spec.shown = rest;
    return spec;
  }
  const size_t space = rest.find(' ');
  spec.names = rest.substr(0, space);
  if (space != std::string_view::npos) spec.metavar = rest.substr(space + 1);
  spec.shown = spec.names.substr(spec.names.rfind(',') + 1);
  return spec;
}

Result<int64_t> read_integer(std::string_view name, const std::string& text,
                             const IntRange& range) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end) {
    return fail(Code::kInvalidArgument, "{}: \"{}\" is not a whole number", name, text);
  }
  if (error != std::errc() || value < range.min || value > range.max) {
    const bool low = text.starts_with("-") || value < range.min;
    return range.max == std::numeric_limits<int64_t>::max() && (low || error == std::errc())
               ? fail(Code::kInvalidArgument, "{}: {} is out of range; it must be at least {}",
                      name, text, range.min)
               : fail(Code::kInvalidArgument, "{}: {} is out of range; it must be {} to {}{}{}",
                      name, text, range.min, range.max, range.reason.empty() ? "" : ", ",
                      range.reason);
  }
  return value;
}

std::string range_text(NumberRange range) {
  const std::string low = fmt::format("{} {}", range.above_min ? "above" : "at least", range.min);
  if (std::isinf(range.max)) return low;
  return fmt::format("{} and {} {}", low, range.below_max ? "below" : "at most", range.max);
}

Result<double> read_number(std::string_view name, const std::string& text, NumberRange range) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    return fail(Code::kInvalidArgument, "{}: \"{}\" is not a number", name, text);
  }
  const bool low = range.above_min ? value <= range.min : value < range.min;
  const bool high = range.below_max ? value >= range.max : value > range.max;
  if (low || high) {
    return fail(Code::kInvalidArgument, "{}: {} is out of range; it must be {}", name, text,
                range_text(range));
  }
  return value;
}

// Free texts may be empty. A name or a path that is empty is a script's variable that was never
// set: it would pass for a flag that was not given, and something else would be done than was
// asked.
Status check_text(const Spec& spec, const std::string& word) {
  if (!word.empty() || spec.metavar == "TEXT") return {};
  return fail(Code::kInvalidArgument, "{} is empty; {}", spec.shown,
              spec.positional && !spec.optional
                  ? std::string("it must be given")
                  : fmt::format("give {}, or leave it out",
                                spec.metavar.empty() ? "a value" : spec.metavar));
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

}  // namespace

struct Flags::State {
  using Reader = std::function<Status(const std::string&)>;

  CLI::App app;
  HelpText help;
  std::string command;
  std::vector<std::string> names;  // for suggestions
  std::vector<std::string> lists;  // of them, those with several values
  std::vector<const CLI::Option*> toggles;
  std::optional<Error> error;  // of the first value that could not be read
  bool help_asked = false;

  // Declares one flag whose every value goes through `read`.
  CLI::Option* value(std::string_view text, std::string shown_default, std::string about,
                     Reader read) {
    const Spec spec = read_spec(text);
    CLI::Option* option = app.add_option(spec.names, [](const CLI::results_t&) { return true; });
    option->check(CLI::Validator(
        [this, read = std::move(read)](std::string& word) -> std::string {
          const Status status = read(word);
          if (!status && !error) error = status.error();
          return status ? "" : "refused";
        },
        ""));
    if (spec.several) {
      option->expected(1, kValuesMax);
      // A positional argument takes further values only so; CLI11 then splits values such as [a,b].
      option->allow_extra_args(spec.positional);
    } else {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    if (spec.positional && !spec.optional) option->required();
    if (!spec.positional) names.push_back(spec.shown);
    if (!spec.positional && spec.several) lists.push_back(spec.shown);
    help.add({.names = spec.names,
              .metavar = spec.metavar,
              .help = std::move(about),
              .shown_default = std::move(shown_default),
              .positional = spec.positional,
              .optional = spec.optional,
              .several = spec.several});
    return option;
  }

  Error explain(const CLI::ParseError& parse_error) const;
};

Flags::Flags(std::string command) : state_(std::make_unique<State>()) {
  state_->command = command;
  state_->help.command = std::move(command);
  state_->app.set_help_flag();
}

Flags::~Flags() = default;

void Flags::about(std::string text) { state_->help.about = std::move(text); }
void Flags::example(std::string line) { state_->help.examples.push_back(std::move(line)); }
void Flags::section(std::string title) { state_->help.section(std::move(title)); }

void Flags::toggle(std::string_view text, bool& target, std::string help) {
  const Spec spec = read_spec(text);
  CLI::Option* option = state_->app.add_flag_callback(spec.names, [] {});
  // CLI11 by itself takes any number, and more, for a yes.
  option->check(CLI::Validator(
      [this, &target, name = spec.shown](std::string& word) -> std::string {
        target = word == "true";
        if (target || word == "false") return "";
        if (!state_->error) {
          state_->error = {Code::kInvalidArgument,
                           fmt::format("{}: \"{}\" is not true or false; leave the value out to "
                                       "switch it on",
                                       name, word)};
        }
        return "refused";
      },
      ""));
  state_->toggles.push_back(option);
  state_->names.push_back(spec.shown);
  state_->help.add({.names = spec.names, .help = std::move(help)});
}

void Flags::text(std::string_view spec, std::string& target, std::string help) {
  state_->value(spec, target, std::move(help),
                [&target, read = read_spec(spec)](const std::string& word) -> Status {
                  JIGE_DO(check_text(read, word));
                  target = word;
                  return {};
                });
}

void Flags::text(std::string_view spec, std::optional<std::string>& target, std::string help) {
  state_->value(spec, target.value_or(""), std::move(help),
                [&target, read = read_spec(spec)](const std::string& word) -> Status {
                  JIGE_DO(check_text(read, word));
                  target = word;
                  return {};
                });
}

void Flags::texts(std::string_view text, std::vector<std::string>& target, std::string help) {
  const Spec spec = read_spec(text);
  CLI::Option* option =
      state_->value(text, joined(target, " "), std::move(help),
                    [spec](const std::string& word) { return check_text(spec, word); });
  // Without "..." the flag takes one value each time it is given.
  if (!spec.several) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->each([&target](const std::string& word) { target.push_back(word); });
}

void Flags::integer(std::string_view spec, int64_t& target, IntRange range, std::string help) {
  state_->value(spec, fmt::format("{}", target), std::move(help),
                [&target, range, name = read_spec(spec).shown](const std::string& word) -> Status {
                  JIGE_TRY(target, read_integer(name, word, range));
                  return {};
                });
}

void Flags::integer(std::string_view spec, std::optional<int64_t>& target, IntRange range,
                    std::string help) {
  state_->value(spec, target ? fmt::format("{}", *target) : "", std::move(help),
                [&target, range, name = read_spec(spec).shown](const std::string& word) -> Status {
                  JIGE_TRY(target, read_integer(name, word, range));
                  return {};
                });
}

void Flags::number(std::string_view spec, double& target, NumberRange range, std::string help) {
  state_->value(spec, fmt::format("{}", target), std::move(help),
                [&target, range, name = read_spec(spec).shown](const std::string& word) -> Status {
                  JIGE_TRY(target, read_number(name, word, range));
                  return {};
                });
}

void Flags::number(std::string_view spec, std::optional<double>& target, NumberRange range,
                   std::string help) {
  state_->value(spec, target ? fmt::format("{}", *target) : "", std::move(help),
                [&target, range, name = read_spec(spec).shown](const std::string& word) -> Status {
                  JIGE_TRY(target, read_number(name, word, range));
                  return {};
                });
}

void Flags::bytes(std::string_view spec, int64_t& target, std::string help) {
  state_->value(spec, "", std::move(help),
                [&target, name = read_spec(spec).shown](const std::string& word) -> Status {
                  const Result<uint64_t> size = parse_bytes(word);
                  if (!size) return with_context(size.error(), "{}", name);
                  if (*size == 0 || *size > (uint64_t{1} << 60)) {
                    return fail(Code::kInvalidArgument,
                                "{}: {} is out of range; it must be 1 byte "
                                "to 1024 PiB",
                                name, word);
                  }
                  target = static_cast<int64_t>(*size);
                  return {};
                });
}

void Flags::choice(std::string_view spec, std::string& target, std::vector<std::string> choices,
                   std::string help) {
  help += fmt::format(": {}", joined(choices, ", "));
  state_->value(
      spec, target, std::move(help),
      [&target, choices, name = read_spec(spec).shown](const std::string& word) -> Status {
        if (std::find(choices.begin(), choices.end(), word) == choices.end()) {
          return fail(Code::kInvalidArgument, "{}: \"{}\" is not one of {}{}", name, word,
                      joined(choices, ", "), suggestion(word, choices));
        }
        target = word;
        return {};
      });
}

bool Flags::given(std::string_view name) const {
  const CLI::Option* option = state_->app.get_option_no_throw(std::string(name));
  JIGE_CHECK(option != nullptr, "flag {} was never declared", name);
  const auto& toggles = state_->toggles;
  const bool toggle = std::find(toggles.begin(), toggles.end(), option) != toggles.end();
  return option->count() > 0 && !(toggle && option->results().back() == "false");
}

Status Flags::refuse(std::initializer_list<std::string_view> names, std::string_view why) const {
  for (const std::string_view name : names) {
    if (given(name)) return fail(Code::kInvalidArgument, "{} {}", name, why);
  }
  return {};
}

Error Flags::State::explain(const CLI::ParseError& parse_error) const {
  const auto message = [&]() -> std::string {
    const std::vector<std::string> unknown = app.remaining();
    for (const std::string& word : unknown) {
      if (!word.starts_with("-") || word == "-" || word == "--") continue;
      const std::string name = word.substr(0, word.find('='));
      return fmt::format("jige {} has no flag {}{}; see jige {} --help", command, name,
                         suggestion(name, names), command);
    }
    if (error) return error->message;
    const auto extra = std::find_if(unknown.begin(), unknown.end(),
                                    [](const std::string& word) { return word != "--"; });
    if (extra != unknown.end()) {
      return fmt::format("unexpected argument \"{}\"; usage: {}", *extra, help.usage_and_example());
    }
    // CLI11 begins these two messages with the name of the option.
    const std::string what = parse_error.what();
    const std::string name = what.substr(0, what.find_first_of(": "));
    if (dynamic_cast<const CLI::RequiredError*>(&parse_error)) {
      return fmt::format("{} is missing; usage: {}", name, help.usage_and_example());
    }
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&parse_error)) {
      return fmt::format("{} needs a value; see jige {} --help", name, command);
    }
    return what;
  };
  return {Code::kInvalidArgument, message()};
}

Status Flags::parse(const std::vector<std::string>& words) {
  // Where a help flag stands behind "--", or is another flag's value, it is not one; CLI11 decides.
  state_->app.set_help_flag("-h,--help");
  // CLI11 takes what follows for the first value, whatever it is.
  const auto among = [](const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  for (size_t i = 1; i < words.size(); ++i) {
    if (among(state_->lists, words[i - 1]) && among(state_->names, words[i])) {
      return fail(Code::kInvalidArgument, "{} needs a value; see jige {} --help", words[i - 1],
                  state_->command);
    }
  }
  std::vector<std::string> reversed;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    // CLI11 reads "--flag=" as a flag whose value is the next word.
    if (word->starts_with("--") && word->size() > 3 && word->find('=') == word->size() - 1) {
      reversed.push_back("");
      reversed.push_back(word->substr(0, word->size() - 1));
    } else {
      reversed.push_back(*word);
    }
  }
  try {
    state_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    state_->help_asked = true;
  } catch (const CLI::ParseError& error) {
    return tl::unexpected<Error>(state_->explain(error));
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, "reading the command line: {}", error.what());
  }
  return {};
}

bool Flags::help_asked() const { return state_->help_asked; }

std::string Flags::help() const { return state_->help.render(); }

}  // namespace jige::cli
