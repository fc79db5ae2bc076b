// Token files: a corpus as one flat array of token ids, mapped rather than loaded.
//
// Layout (little-endian), the one of llm.c, so that other trainers read our files and we theirs:
//   256 x i32 header: [0] magic, [1] version, [2] token count, the rest 0
//       magic 20240520, version 1: u16 tokens follow (vocabularies up to 65536)
//       magic 20240801, version 7: u32 tokens follow
//   count x token
// Headerless files of u16 or u32 (nanoGPT) are read when the caller says so.
//
// Documents stand one after the other, each ended by the separator (end-of-text) token; a last one
// without it counts as well. An optional sidecar PATH.mask holds one byte per token: 1 where the
// token is to be learned as a target, 0 where it is only read (the questions of chat data).
// Threads: const functions may be called from any thread; a writer belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace jige::formats {

inline constexpr int64_t kTokenHeaderBytes = 1024;
inline constexpr int64_t kTokenCountMax = 2147483647;  // the count is an i32

enum class TokenLayout { kHeader, kRawU16, kRawU32 };

// Reads "header", "raw-u16" or "raw-u32". Fails with kInvalidArgument.
Result<TokenLayout> parse_token_layout(std::string_view name);
std::string_view token_layout_name(TokenLayout layout);

struct TokenFileOptions {
  TokenLayout layout = TokenLayout::kHeader;
  int64_t vocab_size = 0;  // ids are checked against it; 0: only that they fit in an i32
};

class TokenFile {
 public:
  // Maps a token file and, where there is one, its mask. Fails with kCorrupt when header, size and
  // mask contradict each other; tokens are looked at when they are read.
  static Result<TokenFile> open(const std::string& path, const TokenFileOptions& options);

  const std::string& path() const { return tokens_.path(); }
  int64_t count() const { return count_; }
  bool has_mask() const { return mask_.has_value(); }

  // Copies tokens [begin, begin + out.size()). Fails with kCorrupt, naming the position, on an id
  // outside the vocabulary, and with kInvalidArgument on a range outside the file.
  Status read(int64_t begin, std::span<int32_t> out) const;
  // Copies the mask of the same range; ones where the file has none. Fails with kCorrupt on bytes
  // other than 0 and 1.
  Status read_mask(int64_t begin, std::span<uint8_t> out) const;
  // One past the first separator at or after `begin`, or count(): the end of a document.
  int64_t document_end(int64_t begin, int32_t separator) const;
  // Reads everything once and fails on the first bad token or mask byte.
  Status check() const;

 private:
  TokenFile(MappedFile tokens, const TokenFileOptions& options)
      : tokens_(std::move(tokens)), options_(options) {}
  Status read_header();
  Status open_mask();
  Status check_range(int64_t begin, size_t size) const;

  MappedFile tokens_;
  std::optional<MappedFile> mask_;
  TokenFileOptions options_;
  const std::byte* data_ = nullptr;
  int64_t count_ = 0;
  int token_bytes_ = 2;
};

struct TokenWriterOptions {
  int64_t vocab_size = 0;  // decides between u16 and u32
  bool with_mask = false;
};

// Writes a token file (and mask) piece by piece; nothing is in place before commit().
class TokenFileWriter {
 public:
  // Fails with kInvalidArgument on a vocabulary outside [1, 2^31).
  static Result<TokenFileWriter> create(const std::string& path, const TokenWriterOptions& options);

  // Appends tokens; an empty mask stands for ones. After a failure only destruction is allowed.
  // Fails with kInvalidArgument on ids outside the vocabulary or a mask of another length, and with
  // kExhausted above kTokenCountMax.
  Status append(std::span<const int32_t> tokens, std::span<const uint8_t> mask = {});
  int64_t count() const { return count_; }
  // Puts mask and tokens in place; a mask left by an earlier file of the name is removed.
  Status commit();

 private:
  TokenFileWriter(std::string path, AtomicFile tokens, const TokenWriterOptions& options);
  Status flush();

  std::string path_;
  AtomicFile tokens_;
  std::optional<AtomicFile> mask_;
  TokenWriterOptions options_;
  std::vector<std::byte> token_buffer_;  // appended, not yet written
  std::vector<std::byte> mask_buffer_;
  int64_t count_ = 0;
};

}  // namespace jige::formats
