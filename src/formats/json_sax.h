// SaxReader: streaming JSON for the large maps of model folders (safetensors headers, shard
// indexes).
//
// A header may name a hundred thousand tensors, for which an ordered JSON tree would cost quadratic
// time and many times the text's memory. A reader sees one token after the other, keeps what it
// wants and refuses everything it did not ask for. Only .cc files of this folder include this.
// Threads: one object per thread.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/json_error.h"
#include "base/result.h"

namespace jige::formats {

class SaxReader : public nlohmann::json_sax<Json> {
 public:
  // Reads one JSON text. `where` names the source in errors. Fails with kCorrupt on a syntax error,
  // a NUL byte or whatever the derived reader refuses.
  Status run(std::string_view text, std::string_view where) {
    where_ = where;
    text_ = text;
    // The library takes a NUL byte for the end of the text.
    if (text.find('\0') != std::string_view::npos) {
      return fail(Code::kCorrupt, "{}: JSON holds a NUL byte", where);
    }
    try {
      if (Json::sax_parse(text.begin(), text.end(), this)) return {};
    } catch (const std::exception& error) {
      syntax_error(error.what());
    }
    return tl::unexpected<Error>(std::move(error_));
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(int64_t) override { return unexpected("a negative number"); }
  bool number_unsigned(uint64_t) override { return unexpected("a number"); }
  bool number_float(double, const std::string&) override { return unexpected("a fraction"); }
  bool string(std::string&) override { return unexpected("a string"); }
  bool binary(Json::binary_t&) override { return unexpected("binary data"); }
  bool start_object(size_t) override { return unexpected("an object"); }
  bool key(std::string&) override { return unexpected("a name"); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return unexpected("an array"); }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    return syntax_error(error.what());
  }

 protected:
  // Ends the reading with kCorrupt and "where: message".
  template <typename... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    error_ = {Code::kCorrupt,
              fmt::format("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...))};
    return false;
  }
  // What the reader was doing, for "unexpected" messages, such as `tensor "a"`.
  virtual std::string place() const = 0;

 private:
  bool syntax_error(std::string_view what) {
    return refuse("not valid JSON: {}", json_error_text(what, text_));
  }
  bool unexpected(std::string_view found) { return refuse("{}: unexpected {}", place(), found); }

  std::string where_;
  std::string_view text_;
  Error error_{Code::kCorrupt, {}};
};

}  // namespace jige::formats
