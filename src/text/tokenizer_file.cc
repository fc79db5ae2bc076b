#include "text/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "base/json_error.h"

namespace jige::text {
namespace {

enum class Content { kTokenizer, kVocabulary };

// Receives parse events. `path_` holds the keys of the open objects; where it says model.vocab or
// model.merges, values go to the lists, elsewhere into the tree. Of a file that is a vocabulary
// alone, the root is that list.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  Reader(TokenizerFile& file, std::string_view text, Content content)
      : file_(file), text_(text), alone_(content == Content::kVocabulary) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return complain("a number is out of range");
    return number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return in_pieces() ? score(value) : scalar(value);
  }
  bool binary(binary_t&) override { return complain("binary values are not JSON"); }

  bool string(string_t& value) override {
    if (in_merges()) return merge_text(value);
    if (in_pieces()) return piece_text(value);
    return scalar(std::move(value));
  }

  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (!skipping() && stack_.back()->size() >= kJsonMembersMax) {
      return complain("an object has too many members");
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return complain("not valid JSON: " + json_error_text(error.what(), text_));
  }

  const std::string& complaint() const { return complaint_; }
  Json take_root() { return std::move(root_); }

 private:
  enum class List { kNone, kVocab, kMerges };

  bool skipping() const { return list_ != List::kNone; }
  bool in_merges() const { return list_ == List::kMerges; }
  bool in_pieces() const { return list_ == List::kVocab && file_.vocab_is_list; }

  bool complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
    return false;
  }

  bool number(int64_t value) {
    if (list_ == List::kVocab && list_depth_ == 1 && !file_.vocab_is_list) {
      file_.vocab.emplace_back(std::move(key_), value);
      return true;
    }
    if (in_pieces()) return score(static_cast<double>(value));
    return scalar(value);
  }

  // A piece is [text, score].
  bool score(double value) {
    if (list_depth_ != 2 || file_.scores.size() + 1 != file_.vocab.size()) {
      return complain("a piece of model.vocab is not [text, score]");
    }
    file_.scores.push_back(value);
    return true;
  }
  bool piece_text(std::string& value) {
    if (list_depth_ != 2 || file_.scores.size() != file_.vocab.size()) {
      return complain("a piece of model.vocab is not [text, score]");
    }
    file_.vocab.emplace_back(std::move(value), static_cast<int64_t>(file_.vocab.size()));
    return true;
  }

  // A merge is "a b" or, one level deeper, the two texts of a pair.
  bool merge_text(std::string& value) {
    if (list_depth_ == 2) {
      pair_.push_back(std::move(value));
      return pair_.size() <= 2 || complain("a merge has more than two parts");
    }
    const size_t space = value.find(' ');
    if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
      if (value.starts_with("#version")) return true;
      return complain("merge \"" + value + "\" is not two tokens with a space between them");
    }
    const std::string_view both = value;
    file_.merges.add(both.substr(0, space), both.substr(space + 1));
    return true;
  }

  bool scalar(Json value) {
    if (skipping()) {
      if (alone_) return complain("token \"" + key_ + "\" has no number");
      return complain(in_merges() ? "model.merges holds something else than texts"
                                  : "model.vocab holds something else than numbers");
    }
    if (alone_) return complain("is not a JSON object");
    place(std::move(value));
    return true;
  }

  // Puts a value where the tree is open and returns it.
  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& member = parent[key_];
    member = std::move(value);
    return &member;
  }

  bool open(Json value) {
    if (++depth_ > static_cast<size_t>(kJsonDepthMax)) return complain("is nested too deeply");
    if (skipping()) {
      const size_t deepest = in_merges() || file_.vocab_is_list ? 2 : 1;
      if (++list_depth_ > deepest) {
        if (alone_) return complain("token \"" + key_ + "\" has no number");
        return complain("model.vocab or model.merges is nested");
      }
      if (in_pieces() && !value.is_array()) {
        return complain("a piece of model.vocab is not [text, score]");
      }
      pair_.clear();
      return true;
    }
    if (alone_) {
      list_ = List::kVocab;
      list_depth_ = 1;
      return value.is_object() || complain("is not a JSON object");
    }
    if (path_.size() == 2 && path_[1] == "model" && (key_ == "vocab" || key_ == "merges")) {
      list_ = key_ == "vocab" ? List::kVocab : List::kMerges;
      list_depth_ = 1;
      if (in_merges() && !value.is_array()) return complain("model.merges is not a list");
      if (!in_merges()) file_.vocab_is_list = value.is_array();
      return true;
    }
    // The root has no key; an array's members share the key of the array.
    path_.push_back(stack_.empty() ? std::string() : key_);
    stack_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    --depth_;
    if (skipping()) {
      if (in_merges() && list_depth_ == 2) {
        if (pair_.size() != 2) return complain("a merge does not have two parts");
        file_.merges.add(pair_[0], pair_[1]);
        pair_.clear();
      }
      if (in_pieces() && file_.scores.size() != file_.vocab.size()) {
        return complain("a piece of model.vocab is not [text, score]");
      }
      if (--list_depth_ == 0) list_ = List::kNone;
      return true;
    }
    stack_.pop_back();
    path_.pop_back();
    return true;
  }

  TokenizerFile& file_;
  std::string_view text_;
  const bool alone_;
  Json root_;
  std::vector<Json*> stack_;
  std::vector<std::string> path_;
  std::string key_;
  std::vector<std::string> pair_;
  List list_ = List::kNone;
  size_t list_depth_ = 0;
  size_t depth_ = 0;
  std::string complaint_;
};

// Hands the text to the reader.
Status read_events(std::string_view text, Reader& reader, std::string_view where) {
  // The library takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return fail(Code::kCorrupt, "{}: JSON holds a NUL byte", where);
  }
  try {
    const bool complete = Json::sax_parse(text.begin(), text.end(), &reader);
    if (!complete) return fail(Code::kCorrupt, "{}: {}", where, reader.complaint());
  } catch (const std::exception& error) {
    return fail(Code::kCorrupt, "{}: {}", where, error.what());
  }
  return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text, std::string_view where) {
  TokenizerFile file;
  Reader reader(file, text, Content::kTokenizer);
  JIGE_DO(read_events(text, reader, where));
  Json root = reader.take_root();
  if (!root.is_object()) return fail(Code::kCorrupt, "{}: is not a JSON object", where);
  file.root = std::make_shared<const Json>(std::move(root));
  return file;
}

Result<std::vector<std::pair<std::string, int64_t>>> parse_vocabulary_file(std::string_view text,
                                                                           std::string_view where) {
  TokenizerFile file;
  Reader reader(file, text, Content::kVocabulary);
  JIGE_DO(read_events(text, reader, where));
  return std::move(file.vocab);
}

}  // namespace jige::text
