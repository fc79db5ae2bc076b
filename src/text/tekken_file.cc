#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/json_error.h"
#include "text/rank_tokens.h"
#include "text/rank_tokens_check.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace jige::text {
namespace {

constexpr std::array<std::string_view, 7> kVersions = {"v1", "v2", "v3", "v7", "v11", "v13", "v15"};
constexpr size_t kUnnamedSpecialVersions = 4;  // so many of them may name no special tokens
constexpr int64_t kSpecialTokensMax = 65536;

// The special tokens of files that name none, in the order of their ids.
constexpr std::array<std::string_view, 20> kFirstSpecial = {"<unk>",
                                                            "<s>",
                                                            "</s>",
                                                            "[INST]",
                                                            "[/INST]",
                                                            "[AVAILABLE_TOOLS]",
                                                            "[/AVAILABLE_TOOLS]",
                                                            "[TOOL_RESULTS]",
                                                            "[/TOOL_RESULTS]",
                                                            "[TOOL_CALLS]",
                                                            "[IMG]",
                                                            "<pad>",
                                                            "[IMG_BREAK]",
                                                            "[IMG_END]",
                                                            "[PREFIX]",
                                                            "[MIDDLE]",
                                                            "[SUFFIX]",
                                                            "[SYSTEM_PROMPT]",
                                                            "[/SYSTEM_PROMPT]",
                                                            "[TOOL_CONTENT]"};

struct TekkenFile {
  std::string pattern;
  std::string version;
  int64_t size = -1;
  int64_t special_count = -1;
  bool names_special = false;
  std::vector<std::pair<int64_t, std::string>> special;
  std::vector<std::string> tokens;
};

// Receives parse events. `path_` holds the keys of the open objects; lists add an empty one.
class TekkenReader final : public nlohmann::json_sax<Json> {
 public:
  TekkenReader(TekkenFile& file, std::string_view text, std::string_view where)
      : file_(file), text_(text), where_(where) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(value > static_cast<uint64_t>(INT64_MAX) ? INT64_MAX
                                                           : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return complain("binary values are not JSON"); }

  bool string(string_t& value) override {
    if (in_config() && key_ == "pattern") return once(file_.pattern, std::move(value));
    if (in_config() && key_ == "version") return once(file_.version, std::move(value));
    if (in_entry("vocab") && key_ == "token_bytes") return once(entry_text_, std::move(value));
    if (in_entry("special_tokens") && key_ == "token_str") {
      return once(entry_text_, std::move(value));
    }
    return true;
  }

  bool start_object(size_t) override {
    entry_rank_ = -1;
    entry_text_.clear();
    return open();
  }
  bool start_array(size_t) override {
    if (path_.size() == 1 && (key_ == "vocab" || key_ == "special_tokens")) {
      if (!lists_.insert(key_).second) return complain("\"" + key_ + "\" stands twice");
      file_.names_special |= key_ == "special_tokens";
    }
    return open();
  }
  bool end_object() override {
    if (in_entry("vocab") && !end_token()) return false;
    if (in_entry("special_tokens") && !end_special()) return false;
    path_.pop_back();
    return true;
  }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return complain("not valid JSON: " + json_error_text(error.what(), text_));
  }

  const std::string& complaint() const { return complaint_; }

 private:
  bool complain(std::string what) {
    if (complaint_.empty()) complaint_ = fmt::format("{}: {}", where_, what);
    return false;
  }

  bool in_config() const { return path_.size() == 2 && path_[1] == "config"; }
  bool in_entry(std::string_view list) const { return path_.size() == 3 && path_[1] == list; }

  bool open() {
    if (path_.size() >= static_cast<size_t>(kJsonDepthMax)) {
      return complain("is nested too deeply");
    }
    // The root has no key, nor has what stands in a list.
    path_.push_back(std::exchange(key_, {}));
    return true;
  }

  bool once(std::string& field, std::string value) {
    if (!field.empty()) return complain("\"" + key_ + "\" stands twice in an object");
    field = std::move(value);
    return true;
  }
  bool once(int64_t& field, int64_t value) {
    if (field >= 0) return complain("\"" + key_ + "\" stands twice in an object");
    if (value < 0) return complain("\"" + key_ + "\" is below 0");
    field = value;
    return true;
  }

  bool number(int64_t value) {
    if (in_config() && key_ == "default_vocab_size") return once(file_.size, value);
    if (in_config() && key_ == "default_num_special_tokens") {
      return once(file_.special_count, value);
    }
    const bool entry = in_entry("vocab") || in_entry("special_tokens");
    return entry && key_ == "rank" ? once(entry_rank_, value) : true;
  }

  bool end_token() {
    if (entry_rank_ != static_cast<int64_t>(file_.tokens.size()) || entry_rank_ > kTokenIdMax) {
      return complain(
          fmt::format("token {} of \"vocab\" has the rank {}", file_.tokens.size(), entry_rank_));
    }
    const Status added = add_rank_token(entry_text_, where_, file_.tokens);
    if (added) return true;
    complaint_ = added.error().message;
    return false;
  }

  bool end_special() {
    if (entry_rank_ < 0 || entry_text_.empty()) {
      return complain("an entry of \"special_tokens\" lacks its rank or token_str");
    }
    file_.special.emplace_back(entry_rank_, std::move(entry_text_));
    return static_cast<int64_t>(file_.special.size()) <= kSpecialTokensMax ||
           complain("has too many special tokens");
  }

  TekkenFile& file_;
  std::string_view text_;
  std::string_view where_;
  std::vector<std::string> path_;
  std::set<std::string> lists_;
  std::string key_;
  int64_t entry_rank_ = -1;
  std::string entry_text_;
  std::string complaint_;
};

Status read_tekken(std::string_view text, std::string_view where, TekkenFile& file) {
  // The library takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return fail(Code::kCorrupt, "{}: JSON holds a NUL byte", where);
  }
  TekkenReader reader(file, text, where);
  try {
    const bool complete = Json::sax_parse(text.begin(), text.end(), &reader);
    if (!complete) return fail(Code::kCorrupt, "{}", reader.complaint());
  } catch (const std::exception& error) {
    return fail(Code::kCorrupt, "{}: {}", where, error.what());
  }
  return {};
}

// Names for the special tokens, by id.
Result<std::vector<std::string>> special_names(TekkenFile& file, size_t version,
                                               std::string_view where) {
  if (!file.names_special) {
    if (version >= kUnnamedSpecialVersions) {
      return fail(Code::kCorrupt, "{}: \"special_tokens\" is missing, which {} must have", where,
                  file.version);
    }
    for (size_t i = 0; i < kFirstSpecial.size(); ++i)
      file.special.emplace_back(i, kFirstSpecial[i]);
  }
  std::vector<std::string> names(static_cast<size_t>(file.special_count));
  for (auto& [rank, name] : file.special) {
    if (rank >= file.special_count || !names[static_cast<size_t>(rank)].empty()) {
      return fail(Code::kCorrupt, "{}: the special token \"{}\" has the rank {}, {}", where, name,
                  rank, rank >= file.special_count ? "too large" : "which another one has");
    }
    names[static_cast<size_t>(rank)] = std::move(name);
  }
  std::set<std::string_view> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = fmt::format("<SPECIAL_{}>", i);
    if (seen.insert(names[i]).second) continue;
    return fail(Code::kCorrupt, "{}: the special token \"{}\" stands twice", where, names[i]);
  }
  return names;
}

}  // namespace

Result<RankTokens> parse_tekken(std::string_view text, std::string_view where) {
  TekkenFile file;
  JIGE_DO(read_tekken(text, where, file));
  const auto* version = std::find(kVersions.begin(), kVersions.end(), file.version);
  if (version == kVersions.end() && !file.version.empty()) {
    return fail(Code::kUnsupported, "{}: the version \"{}\" is not supported", where, file.version);
  }
  if (file.version.empty() || file.pattern.empty() || file.size < 0 || file.special_count < 0) {
    return fail(Code::kCorrupt,
                "{}: \"config\" must have a version, a pattern, default_vocab_size and "
                "default_num_special_tokens",
                where);
  }
  const auto count = static_cast<int64_t>(file.tokens.size());
  if (file.special_count > kSpecialTokensMax || file.size < file.special_count ||
      file.size > count + file.special_count) {
    return fail(Code::kCorrupt, "{}: {} tokens and {} special ones do not make {} of them", where,
                count, file.special_count, file.size);
  }
  JIGE_TRY(std::vector<std::string> names,
           special_names(file, static_cast<size_t>(version - kVersions.begin()), where));
  file.tokens.resize(static_cast<size_t>(file.size - file.special_count));
  JIGE_DO(check_rank_tokens(file.tokens, where));
  RankTokens ranks{.tokens = std::move(file.tokens),
                   .first_id = static_cast<int32_t>(file.special_count),
                   .pattern = std::move(file.pattern),
                   .special = {}};
  for (size_t i = 0; i < names.size(); ++i) {
    ranks.special.push_back({.content = std::move(names[i]),
                             .id = static_cast<int32_t>(i),
                             .special = true,
                             .normalized = false});
  }
  return ranks;
}

}  // namespace jige::text
