#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/file_content.h"
#include "text/merge_list.h"
#include "text/tokenizer_core.h"

namespace jige::text {
namespace {

constexpr size_t kTokenizerBytesMax = size_t{256} << 20;

Tokenizer wrap(TokenizerParts parts) {
  return Tokenizer(std::make_shared<const TokenizerCore>(std::move(parts)));
}

Result<TokenizerParts> parts_from_json(std::string_view text, const TokenizerConfig& config,
                                       std::string_view where) {
  JIGE_TRY(TokenizerFile file, parse_tokenizer_file(text, where));
  return as_file_content(build_from_file(std::move(file), config, where));
}

// A vocab.json is not read without the merges.txt beside it.
Result<TokenizerParts> parts_from_merges(std::string_view vocab, const TokenizerConfig& config,
                                         std::string_view where) {
  const std::filesystem::path path(where);
  const std::string folder = path.parent_path().string();
  MergeFiles files{
      .vocab = vocab, .vocab_where = std::string(where), .merges_where = folder + "/merges.txt"};
  Result<std::string> merges = read_file(files.merges_where, kTokenizerBytesMax);
  if (!merges && merges.error().code == Code::kNotFound) {
    return fail(Code::kNotFound,
                "{}: is not there, which a vocab.json needs beside it; put it there, or take a "
                "folder with a tokenizer.json",
                files.merges_where);
  }
  if (!merges) return tl::unexpected<Error>(std::move(merges.error()));
  files.merges = *merges;
  JIGE_TRY(files.tokens, read_token_files(folder));
  return as_file_content(build_from_merges(files, config));
}

using PartsFrom = Result<TokenizerParts> (*)(std::string_view content,
                                             const TokenizerConfig& config, std::string_view where);
constexpr std::array<PartsFrom, kTokenizerFileNames.size()> kPartsFrom = {
    parts_from_json,          build_from_tekken, build_from_rank_list, build_from_sentencepiece,
    build_from_framed_pieces, build_from_vocab,  parts_from_merges};

tl::unexpected<Error> outside(int32_t id, int32_t vocab_size) {
  return fail(Code::kInvalidArgument, "token {} is outside the vocabulary of {}", id, vocab_size);
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::string& folder) {
  JIGE_TRY(const TokenizerConfig config, load_tokenizer_config(folder));
  for (size_t i = 0; i < kTokenizerFileNames.size(); ++i) {
    const std::string path = fmt::format("{}/{}", folder, kTokenizerFileNames[i]);
    Result<std::string> content = read_file(path, kTokenizerBytesMax);
    if (content) {
      JIGE_TRY(TokenizerParts parts, kPartsFrom[i](*content, config, path));
      return wrap(std::move(parts));
    }
    if (content.error().code != Code::kNotFound) {
      return tl::unexpected<Error>(std::move(content.error()));
    }
  }
  return fail(Code::kNotFound, "{}: has none of {}", folder, fmt::join(kTokenizerFileNames, ", "));
}

Result<Tokenizer> Tokenizer::from_json(std::string_view text, std::string_view where) {
  JIGE_TRY(TokenizerParts parts, parts_from_json(text, {}, where));
  return wrap(std::move(parts));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  return core_->encode(text, options);
}

std::optional<size_t> Tokenizer::safe_cut(std::string_view text, size_t wanted,
                                          bool continues) const {
  return core_->safe_cut(text, wanted, continues);
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  std::string text;
  DecoderRun run(core_->parts().decoder);
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) return outside(id, vocab_size());
    const std::string* token = core_->token(id);
    if (!token || (options.skip_special && is_special(id))) continue;
    run.push(*token, text);
  }
  run.finish(text);
  return text;
}

int32_t Tokenizer::vocab_size() const { return core_->vocab_size(); }

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  const std::string* token = core_->token(id);
  return token ? std::optional<std::string>(*token) : std::nullopt;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return core_->id(token);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = core_->parts().added.find(id);
  return added && added->special;
}

const SpecialTokens& Tokenizer::special() const { return core_->parts().special; }

bool Tokenizer::marks_start() const { return core_->marks_start(); }

bool Tokenizer::may_lose_start() const {
  const TokenizerParts& parts = core_->parts();
  return parts.pre_tokenizer.marks_start_alone() && parts.normalizer.may_drop_first();
}

std::span<const int32_t> Tokenizer::prefix_ids() const {
  return core_->parts().post_processor.prefix;
}

std::span<const int32_t> Tokenizer::suffix_ids() const {
  return core_->parts().post_processor.suffix;
}

const PairFrame* Tokenizer::pair_frame() const {
  const std::optional<PairFrame>& pair = core_->parts().post_processor.pair;
  return pair ? &*pair : nullptr;
}

const std::string& Tokenizer::chat_template() const { return core_->parts().chat_template; }

struct StreamDecoder::State {
  Tokenizer tokenizer;
  DecodeOptions options;
  DecoderRun run;
  State(const Tokenizer& shared, const DecodeOptions& chosen)
      : tokenizer(shared), options(chosen), run(tokenizer.core().parts().decoder) {}
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : state_(std::make_unique<State>(tokenizer, options)) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

Result<std::string> StreamDecoder::push(int32_t id) {
  const Tokenizer& tokenizer = state_->tokenizer;
  if (id < 0 || id >= tokenizer.vocab_size()) return outside(id, tokenizer.vocab_size());
  std::string text;
  const std::string* token = tokenizer.core().token(id);
  if (token && !(state_->options.skip_special && tokenizer.is_special(id))) {
    state_->run.push(*token, text);
  }
  return text;
}

std::string StreamDecoder::flush() {
  std::string text;
  state_->run.finish(text);
  return text;
}

}  // namespace jige::text
