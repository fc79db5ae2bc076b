#include "formats/token_bin.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>

namespace jige::formats {
namespace {

constexpr int32_t kMagicU16 = 20240520;
constexpr int32_t kVersionU16 = 1;
constexpr int32_t kMagicU32 = 20240801;
constexpr int32_t kVersionU32 = 7;
constexpr int64_t kVocabU16Max = 65536;
constexpr size_t kCheckTokens = size_t{1} << 16;
constexpr size_t kBufferBytes = size_t{1} << 20;

using Header = std::array<int32_t, 256>;
static_assert(sizeof(Header) == kTokenHeaderBytes);

int token_bytes_for(int64_t vocab_size) { return vocab_size <= kVocabU16Max ? 2 : 4; }

// Widens tokens and returns the largest, so that the bounds check costs one comparison per call.
template <typename T>
uint32_t widen(const std::byte* data, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, data + i * sizeof(T), sizeof token);
    largest = std::max<uint32_t>(largest, token);
    out[i] = static_cast<int32_t>(token);
  }
  return largest;
}

template <typename T>
int64_t find_token(const std::byte* data, int64_t begin, int64_t end, uint32_t wanted) {
  for (int64_t i = begin; i < end; ++i) {
    T token;
    std::memcpy(&token, data + static_cast<size_t>(i) * sizeof(T), sizeof token);
    if (token == wanted) return i;
  }
  return end;
}

Header read_header_words(std::span<const std::byte> bytes) {
  Header header{};
  if (!bytes.empty())
    std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), sizeof header));
  return header;
}

int header_token_bytes(const Header& header) {
  if (header[0] == kMagicU16 && header[1] == kVersionU16) return 2;
  if (header[0] == kMagicU32 && header[1] == kVersionU32) return 4;
  return 0;
}

}  // namespace

Result<TokenLayout> parse_token_layout(std::string_view name) {
  if (name == "header") return TokenLayout::kHeader;
  if (name == "raw-u16") return TokenLayout::kRawU16;
  if (name == "raw-u32") return TokenLayout::kRawU32;
  return fail(Code::kInvalidArgument,
              "\"{}\" is not a token file layout; known are header, raw-u16 and raw-u32", name);
}

std::string_view token_layout_name(TokenLayout layout) {
  switch (layout) {
    case TokenLayout::kHeader:
      return "header";
    case TokenLayout::kRawU16:
      return "raw-u16";
    case TokenLayout::kRawU32:
      return "raw-u32";
  }
  return "header";
}

Status TokenFile::read_header() {
  const std::span<const std::byte> bytes = tokens_.bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  const Header header = read_header_words(bytes);
  const int stored_bytes = header_token_bytes(header);
  const bool whole_header = size >= kTokenHeaderBytes;
  if (options_.layout != TokenLayout::kHeader) {
    if (whole_header && stored_bytes > 0 &&
        size == kTokenHeaderBytes + int64_t{header[2]} * stored_bytes) {
      return fail(
          Code::kInvalidArgument,
          "{}: was said to be headerless, but begins with a token file header; read it with "
          "the layout \"header\"",
          path());
    }
    token_bytes_ = options_.layout == TokenLayout::kRawU16 ? 2 : 4;
    if (size % token_bytes_ != 0) {
      return fail(Code::kCorrupt, "{}: has {} bytes, which is no multiple of {}", path(), size,
                  token_bytes_);
    }
    data_ = bytes.data();
    count_ = size / token_bytes_;
    return {};
  }
  if (!whole_header || stored_bytes == 0) {
    return fail(Code::kCorrupt,
                "{}: does not begin with a token file header (magic {}, version {}); a headerless "
                "file needs the layout \"raw-u16\" or \"raw-u32\"",
                path(), header[0], header[1]);
  }
  token_bytes_ = stored_bytes;
  count_ = header[2];
  if (count_ < 0 || size != kTokenHeaderBytes + count_ * token_bytes_) {
    return fail(Code::kCorrupt,
                "{}: its header says {} tokens of {} bytes, but {} bytes follow; the file is "
                "truncated or its header lies",
                path(), count_, token_bytes_, size - kTokenHeaderBytes);
  }
  data_ = bytes.data() + kTokenHeaderBytes;
  return {};
}

Status TokenFile::open_mask() {
  const std::string mask_path = path() + ".mask";
  std::error_code error;
  if (!std::filesystem::exists(mask_path, error)) return {};
  JIGE_TRY(MappedFile mask, MappedFile::open(mask_path));
  if (static_cast<int64_t>(mask.bytes().size()) != count_) {
    return fail(Code::kCorrupt,
                "{}: has {} bytes for the {} tokens of {}; make both again, or remove the mask to "
                "train on every token",
                mask_path, mask.bytes().size(), count_, path());
  }
  mask_ = std::move(mask);
  return {};
}

Result<TokenFile> TokenFile::open(const std::string& path, const TokenFileOptions& options) {
  JIGE_TRY(MappedFile tokens, MappedFile::open(path));
  TokenFile file(std::move(tokens), options);
  JIGE_DO(file.read_header());
  JIGE_DO(file.open_mask());
  return file;
}

Status TokenFile::check_range(int64_t begin, size_t size) const {
  if (begin >= 0 && begin <= count_ && size <= static_cast<size_t>(count_ - begin)) return {};
  return fail(Code::kInvalidArgument, "{}: tokens [{}, {} + {}) are asked for, it has {}", path(),
              begin, begin, size, count_);
}

Status TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  JIGE_DO(check_range(begin, out.size()));
  const std::byte* data = data_ + begin * token_bytes_;
  const uint32_t largest =
      token_bytes_ == 2 ? widen<uint16_t>(data, out) : widen<uint32_t>(data, out);
  const int64_t limit =
      options_.vocab_size > 0 ? options_.vocab_size : int64_t{std::numeric_limits<int32_t>::max()};
  if (out.empty() || largest < limit) return {};
  const auto end = begin + static_cast<int64_t>(out.size());
  const int64_t place = token_bytes_ == 2 ? find_token<uint16_t>(data_, begin, end, largest)
                                          : find_token<uint32_t>(data_, begin, end, largest);
  return fail(
      Code::kCorrupt,
      "{}: token {} has id {}, outside the vocabulary of {}; was the file made with another "
      "tokenizer?",
      path(), place, largest, limit);
}

Status TokenFile::read_mask(int64_t begin, std::span<uint8_t> out) const {
  JIGE_DO(check_range(begin, out.size()));
  if (!mask_) {
    std::fill(out.begin(), out.end(), uint8_t{1});
    return {};
  }
  if (!out.empty()) std::memcpy(out.data(), mask_->bytes().data() + begin, out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] > 1) {
      return fail(Code::kCorrupt, "{}: byte {} is {}; it must be 0 or 1", mask_->path(),
                  begin + static_cast<int64_t>(i), out[i]);
    }
  }
  return {};
}

int64_t TokenFile::document_end(int64_t begin, int32_t separator) const {
  begin = std::clamp<int64_t>(begin, 0, count_);
  const auto wanted = static_cast<uint32_t>(separator);
  const int64_t place = token_bytes_ == 2 ? find_token<uint16_t>(data_, begin, count_, wanted)
                                          : find_token<uint32_t>(data_, begin, count_, wanted);
  return std::min(place + 1, count_);
}

Status TokenFile::check() const {
  std::vector<int32_t> tokens(kCheckTokens);
  std::vector<uint8_t> mask(kCheckTokens);
  for (int64_t begin = 0; begin < count_; begin += static_cast<int64_t>(kCheckTokens)) {
    const auto size =
        static_cast<size_t>(std::min<int64_t>(count_ - begin, static_cast<int64_t>(kCheckTokens)));
    JIGE_DO(read(begin, std::span(tokens).first(size)));
    JIGE_DO(read_mask(begin, std::span(mask).first(size)));
  }
  return {};
}

TokenFileWriter::TokenFileWriter(std::string path, AtomicFile tokens,
                                 const TokenWriterOptions& options)
    : path_(std::move(path)), tokens_(std::move(tokens)), options_(options) {}

Result<TokenFileWriter> TokenFileWriter::create(const std::string& path,
                                                const TokenWriterOptions& options) {
  if (options.vocab_size < 1 || options.vocab_size > kTokenCountMax) {
    return fail(Code::kInvalidArgument, "{}: a vocabulary of {} tokens cannot be stored", path,
                options.vocab_size);
  }
  JIGE_TRY(AtomicFile tokens, AtomicFile::create(path));
  TokenFileWriter writer(path, std::move(tokens), options);
  if (options.with_mask) {
    JIGE_TRY(AtomicFile mask, AtomicFile::create(path + ".mask"));
    writer.mask_ = std::move(mask);
  }
  Header header{};
  const bool narrow = token_bytes_for(options.vocab_size) == 2;
  header[0] = narrow ? kMagicU16 : kMagicU32;
  header[1] = narrow ? kVersionU16 : kVersionU32;
  JIGE_DO(writer.tokens_.write(header.data(), sizeof header));
  return writer;
}

Status TokenFileWriter::append(std::span<const int32_t> tokens, std::span<const uint8_t> mask) {
  if (!mask.empty() && mask.size() != tokens.size()) {
    return fail(Code::kInvalidArgument, "{}: {} tokens come with a mask of {}", path_,
                tokens.size(), mask.size());
  }
  if (tokens.size() > static_cast<size_t>(kTokenCountMax - count_)) {
    return fail(Code::kExhausted, "{}: a token file holds at most {} tokens; split the corpus",
                path_, kTokenCountMax);
  }
  const auto width = static_cast<size_t>(token_bytes_for(options_.vocab_size));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= options_.vocab_size) {
      return fail(Code::kInvalidArgument, "{}: token {} has id {}, outside the vocabulary of {}",
                  path_, count_ + static_cast<int64_t>(i), tokens[i], options_.vocab_size);
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(&tokens[i]);  // low bytes first
    token_buffer_.insert(token_buffer_.end(), bytes, bytes + width);
    if (mask_) mask_buffer_.push_back(std::byte{mask.empty() || mask[i] != 0});
    if (token_buffer_.size() >= kBufferBytes) JIGE_DO(flush());
  }
  count_ += static_cast<int64_t>(tokens.size());
  return {};
}

Status TokenFileWriter::flush() {
  JIGE_DO(tokens_.write(token_buffer_.data(), token_buffer_.size()));
  if (mask_) JIGE_DO(mask_->write(mask_buffer_.data(), mask_buffer_.size()));
  token_buffer_.clear();
  mask_buffer_.clear();
  return {};
}

Status TokenFileWriter::commit() {
  JIGE_DO(flush());
  const auto count = static_cast<int32_t>(count_);
  JIGE_DO(tokens_.write_at(2 * sizeof(int32_t), &count, sizeof count));
  JIGE_DO(tokens_.sync());
  // The mask goes first: tokens without their mask would train on everything.
  if (mask_) JIGE_DO(mask_->commit());
  JIGE_DO(tokens_.commit());
  if (!mask_) {
    std::error_code error;
    std::filesystem::remove(path_ + ".mask", error);
  }
  return {};
}

}  // namespace jige::formats
