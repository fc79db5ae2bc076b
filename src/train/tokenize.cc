#include "train/tokenize.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/token_bin.h"
#include "formats/xxhash64.h"
#include "text/unicode.h"
#include "train/document_index.h"

namespace jige::train {
namespace {

// Raised when the tokens of an unchanged file would change.
constexpr uint64_t kCacheVersion = 1;
// The same where only files with completions change that the tokenizer may put a space before.
constexpr uint64_t kCompletionVersion = 1;
// The same where only tokenizers change that leave the mark before a text out with its first
// character.
constexpr uint64_t kStartVersion = 1;
// The same where only text files change that may have documents in several pieces.
constexpr uint64_t kPieceVersion = 1;
// The same where only pairs of answers change.
constexpr uint64_t kPairVersion = 1;
// The same where only files change that may have images.
constexpr uint64_t kImageVersion = 1;
constexpr size_t kBatchBytes = size_t{2} << 20;
constexpr size_t kBatchRecords = 8192;
constexpr int64_t kRecordsPerRange = 16;
constexpr size_t kBlockBytes = size_t{64} << 10;  // stays in the cache of a core

// Everything in a folder that may change what its tokenizer does.
constexpr std::array kTokenizerFiles = {"tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "tekken.json",
                                        "tiktoken.model",
                                        "chat_template.json",
                                        "vocab.txt",
                                        "spm.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "added_tokens.json"};

// What may say the class of a tokenizer that is a vocab.json with a merges.txt.
constexpr std::array kTokenizerClassFiles = {"config.json"};

// What decides which tokens an image takes.
constexpr std::array kImageTokenFiles = {"config.json", "processor_config.json",
                                         "preprocessor_config.json"};

void hash_text(formats::XxHash64& hash, std::string_view text) {
  const uint64_t size = text.size();
  hash.update(&size, sizeof size);
  hash.update(text.data(), text.size());
}

// Hands a file's bytes to `take`, block by block.
Status for_each_block(const std::string& path,
                      const std::function<void(std::string_view block)>& take) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path, "open", errno);
  std::vector<char> buffer(kBlockBytes);
  ssize_t got = 0;
  do {
    got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) take({buffer.data(), static_cast<size_t>(got)});
  } while (got > 0);
  const int reason = errno;
  ::close(fd);
  if (got < 0) return file_error(path, "read", reason);
  return {};
}

// Whether one of some signs, shorter than a block, stands in a file.
Result<bool> has_sign(const std::string& path, std::span<const std::string_view> signs) {
  size_t kept = 0;  // of the block before: the longest sign but a letter
  for (const std::string_view sign : signs) kept = std::max(kept, sign.size() - 1);
  bool found = false;
  std::string seen;
  JIGE_DO(for_each_block(path, [&](std::string_view block) {
    seen.append(block);
    for (const std::string_view sign : signs) {
      found = found || text::find_text(seen, sign) != std::string_view::npos;
    }
    seen.erase(0, seen.size() - std::min(seen.size(), kept));
  }));
  return found;
}

// Whether a JSONL file may have a field "completion": that name, or a letter written as an escape.
Result<bool> may_have_completions(const std::string& path) {
  constexpr std::string_view kSigns[] = {"\"completion\"", "\\u006", "\\u007"};
  return has_sign(path, kSigns);
}

// The same of images, and of their fields and types.
Result<bool> may_have_images(const std::string& path) {
  constexpr std::string_view kSigns[] = {"\"image", "\\u006"};
  return has_sign(path, kSigns);
}

Status hash_files(formats::XxHash64& hash, const std::string& folder,
                  std::span<const char* const> names) {
  for (const char* name : names) {
    const std::string file = folder + "/" + name;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) continue;
    JIGE_TRY(const uint64_t file_hash, hash_file(file));
    hash_text(hash, name);
    hash.update(&file_hash, sizeof file_hash);
  }
  return {};
}

// What decides how texts become tokens.
Status hash_tokenizer(formats::XxHash64& hash, const std::string& folder) {
  JIGE_DO(hash_files(hash, folder, kTokenizerFiles));
  std::error_code error;
  const auto has = [&](const char* name) { return std::filesystem::exists(folder + name, error); };
  if (has("/tokenizer.json") || !has("/merges.txt")) return {};
  return hash_files(hash, folder, kTokenizerClassFiles);
}

// What decides how images become tokens.
Status hash_image_options(formats::XxHash64& hash, const TokenizeOptions& options) {
  const ImageEncoding& images = *options.encoder.images;
  hash.update(&kImageVersion, sizeof kImageVersion);
  const int64_t sizes[] = {images.context, images.config.width_max, images.config.height_max,
                           images.config.pixels_max};
  hash.update(sizes, sizeof sizes);
  return hash_files(hash, options.image_folder, kImageTokenFiles);
}

// Whether a file may have images that are read.
Result<bool> wants_images(const std::string& path, SourceKind kind,
                          const TokenizeOptions& options) {
  if (kind != SourceKind::kJsonl || !options.encoder.images) return false;
  return may_have_images(path);
}

Result<uint64_t> cache_key(const std::string& path, SourceKind kind,
                           const text::Tokenizer& tokenizer, const TokenizeOptions& options,
                           bool with_images) {
  formats::XxHash64 hash;
  hash.update(&kCacheVersion, sizeof kCacheVersion);
  JIGE_TRY(const uint64_t content, hash_file(path));
  hash.update(&content, sizeof content);
  JIGE_DO(hash_tokenizer(hash, options.tokenizer_folder));
  const std::array<uint8_t, 4> choices = {static_cast<uint8_t>(kind),
                                          static_cast<uint8_t>(options.records.split),
                                          options.records.skip_bad, options.encoder.append_eos};
  hash.update(choices.data(), choices.size());
  hash_text(hash, options.records.separator);
  hash_text(hash, options.encoder.text_field);
  if (kind == SourceKind::kJsonl && tokenizer.marks_start()) {
    JIGE_TRY(const bool completions, may_have_completions(path));
    if (completions) hash.update(&kCompletionVersion, sizeof kCompletionVersion);
  }
  if (const int64_t context = options.encoder.pair_context; context > 0) {
    hash.update(&kPairVersion, sizeof kPairVersion);
    hash.update(&context, sizeof context);
  }
  if (with_images) JIGE_DO(hash_image_options(hash, options));
  if (tokenizer.may_lose_start()) hash.update(&kStartVersion, sizeof kStartVersion);
  std::error_code unknown;
  if (kind == SourceKind::kText && std::filesystem::file_size(path, unknown) > kPieceBytes) {
    hash.update(&kPieceVersion, sizeof kPieceVersion);
  }
  return hash.digest();
}

std::string cache_path(const std::string& path, uint64_t key, const std::string& folder) {
  const std::string stem = std::filesystem::path(path).stem().string();
  return fmt::format("{}/{}-{}.bin", folder, stem, formats::checksum_text(key));
}

// The key with the contents of images in it.
uint64_t key_with_images(uint64_t key, std::span<const CorpusImage> images) {
  if (images.empty()) return key;
  formats::XxHash64 hash;
  hash.update(&key, sizeof key);
  for (const CorpusImage& image : images) {
    hash.update(&image.source.digest, sizeof image.source.digest);
  }
  return hash.digest();
}

// The copy at `path`, if it is whole. Tokens without their mask would all be learned.
Result<TokenizedFile> open_copy(const std::string& path, uint64_t key, SourceKind kind,
                                int64_t vocab_size, bool with_images) {
  JIGE_TRY(const auto file, formats::TokenFile::open(path, {.vocab_size = vocab_size}));
  if (kind == SourceKind::kJsonl && !file.has_mask()) {
    return fail(Code::kNotFound, "{}: has no mask", path);
  }
  JIGE_DO(file.check());
  std::error_code error;
  if (!std::filesystem::exists(document_index_path(path), error)) {
    return fail(Code::kNotFound, "{}: has no document index", path);
  }
  JIGE_TRY(const auto ends, read_document_ends(file, -1));
  std::vector<CorpusImage> images;
  if (with_images) {
    JIGE_TRY(images, read_image_index(path, file.count()));
  }
  if (!images_unchanged(images)) {
    return fail(Code::kUnavailable, "{}: has images that were changed", path);
  }
  return TokenizedFile{.path = path,
                       .key = key_with_images(key, images),
                       .from_cache = true,
                       .token_count = file.count(),
                       .document_count = static_cast<int64_t>(ends.size()),
                       .images = std::move(images)};
}

// By which a change of a file is seen while it is read; empty where the system says nothing.
struct FileStamp {
  int64_t size = -1;
  int64_t changed_s = 0;
  int64_t changed_ns = 0;

  static FileStamp of(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return {};
    return {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  }
  bool operator==(const FileStamp&) const = default;
};

// Reads, encodes and writes one file batch by batch.
class Tokenization {
 public:
  struct Choices {
    bool skip_bad = false;
    bool with_images = false;  // the file may have some
  };
  Tokenization(const std::string& source, const std::string& copy_path,
               const DocumentEncoder& encoder, RecordReader reader, formats::TokenFileWriter writer,
               Choices choices)
      : source_(source),
        copy_path_(copy_path),
        encoder_(encoder),
        reader_(std::move(reader)),
        writer_(std::move(writer)),
        skip_bad_(choices.skip_bad),
        with_images_(choices.with_images) {}

  // Reads the next batch; false at the end of the file.
  Result<bool> read_batch() {
    records_.clear();
    size_t bytes = 0;
    while (bytes < kBatchBytes && records_.size() < kBatchRecords) {
      Record record;
      JIGE_TRY(const bool more, reader_.next(record));
      if (!more) break;
      bytes += record.text.size();
      records_.push_back(std::move(record));
    }
    return !records_.empty();
  }

  void encode_batch(ThreadTeam& team) {
    parts_.clear();
    parts_.resize(records_.size());
    team.parallel_for(static_cast<int64_t>(records_.size()), kRecordsPerRange,
                      [&](int64_t begin, int64_t end, int) {
                        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end);
                             ++i) {
                          parts_[i] = encoder_.encode(records_[i], source_);
                        }
                      });
  }

  Status write_batch() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      auto& part = parts_[i];
      if (!part) {
        if (!skip_bad_ || !records_[i].json) return tl::unexpected(std::move(part.error()));
        ++bad_count_;
        continue;
      }
      JIGE_DO(add_images(part->images));
      JIGE_DO(writer_.append(part->ids, part->learned));
      const int64_t end = writer_.count();
      if (part->second_begin > 0) {
        ends_.push_back(end - std::ssize(part->ids) + static_cast<int64_t>(part->second_begin));
      }
      if (part->ends && end > (ends_.empty() ? 0 : ends_.back())) ends_.push_back(end);
    }
    return {};
  }

  Status commit(const std::string& path) {
    // The token file comes last: where it is, the others are whole.
    if (pictures_) JIGE_DO(pictures_->commit());
    if (with_images_) JIGE_DO(write_image_index(path, images_));
    JIGE_DO(write_document_index(path, ends_));
    Status committed = writer_.commit();
    if (!committed) ::unlink(document_index_path(path).c_str());
    return committed;
  }

  int64_t bytes_read() const { return reader_.bytes_read(); }
  const std::vector<int64_t>& forced_lines() const { return reader_.forced_lines(); }
  int64_t skipped_count() const { return reader_.skipped_count() + bad_count_; }
  int64_t token_count() const { return writer_.count(); }
  int64_t document_count() const { return static_cast<int64_t>(ends_.size()); }
  std::vector<CorpusImage> take_images() { return std::move(images_); }

 private:
  // Of a document that is written next.
  Status add_images(std::vector<EncodedImage>& images) {
    for (EncodedImage& one : images) {
      one.image.token += writer_.count();
      if (one.image.source.file.empty()) {
        if (!pictures_) {
          JIGE_TRY(AtomicFile file, AtomicFile::create(pictures_path(copy_path_)));
          pictures_.emplace(std::move(file));
        }
        one.image.source.at = pictures_bytes_;
        JIGE_DO(pictures_->write(one.bytes.data(), one.bytes.size()));
        pictures_bytes_ += std::ssize(one.bytes);
      }
      images_.push_back(std::move(one.image));
    }
    return {};
  }

  const std::string& source_;
  const std::string& copy_path_;
  const DocumentEncoder& encoder_;
  RecordReader reader_;
  formats::TokenFileWriter writer_;
  bool skip_bad_;
  bool with_images_;
  std::vector<Record> records_;
  std::vector<Result<EncodedPart>> parts_;
  std::vector<int64_t> ends_;
  std::vector<CorpusImage> images_;
  std::optional<AtomicFile> pictures_;  // of data: URLs, once there is one
  int64_t pictures_bytes_ = 0;
  int64_t bad_count_ = 0;
};

void warn_of_forced_cuts(const std::string& path, const std::vector<int64_t>& lines) {
  if (lines.empty()) return;
  log_warn(
      "{}:{}: {} from here on have no place where the tokenizer lets a text be cut, for lack of "
      "spaces perhaps; they were cut all the same, and the tokens at {} place{} may differ from "
      "those of the whole; break up such lines where you can",
      path, lines[0], format_bytes(static_cast<int64_t>(kUncutBytesMax)), lines.size(),
      lines.size() == 1 ? "" : "s");
}

}  // namespace

Result<uint64_t> hash_file(const std::string& path) {
  formats::XxHash64 hash;
  JIGE_DO(for_each_block(path,
                         [&](std::string_view block) { hash.update(block.data(), block.size()); }));
  return hash.digest();
}

Result<TokenizedFile> tokenize_file(const std::string& path, const text::Tokenizer& tokenizer,
                                    const TokenizeOptions& options, ThreadTeam& team) {
  JIGE_TRY(const SourceKind kind, source_kind(path));
  const FileStamp stamp = FileStamp::of(path);
  JIGE_TRY(const bool with_images, wants_images(path, kind, options));
  JIGE_TRY(const uint64_t key, cache_key(path, kind, tokenizer, options, with_images));
  const std::string copy_path = cache_path(path, key, options.cache_folder);
  if (auto copy = open_copy(copy_path, key, kind, tokenizer.vocab_size(), with_images); copy) {
    return copy;
  }

  JIGE_DO(make_folders(options.cache_folder));
  JIGE_TRY(const DocumentEncoder encoder, DocumentEncoder::create(tokenizer, options.encoder));
  RecordOptions records = options.records;
  records.piece_end = [&](std::string_view text, bool continues) {
    return tokenizer.safe_cut(text, text.size(), continues);
  };
  JIGE_TRY(RecordReader reader, RecordReader::open(path, records));
  JIGE_TRY(auto writer,
           formats::TokenFileWriter::create(copy_path, {.vocab_size = tokenizer.vocab_size(),
                                                        .with_mask = kind == SourceKind::kJsonl}));
  Tokenization work(path, copy_path, encoder, std::move(reader), std::move(writer),
                    {.skip_bad = options.records.skip_bad, .with_images = with_images});
  for (;;) {
    JIGE_TRY(const bool more, work.read_batch());
    if (!more) break;
    work.encode_batch(team);
    JIGE_DO(work.write_batch());
    if (options.progress && !options.progress(work.bytes_read(), stamp.size)) {
      return fail(Code::kCancelled, "{}: stopped while reading", path);
    }
  }
  warn_of_forced_cuts(path, work.forced_lines());
  // The copy bears the name of what was there when its key was taken.
  if (FileStamp::of(path) != stamp) {
    return fail(Code::kUnavailable,
                "{}: was changed while it was read; give the command again when it is complete",
                path);
  }
  JIGE_DO(work.commit(copy_path));
  TokenizedFile copy{.path = copy_path,
                     .key = key,
                     .from_cache = false,
                     .token_count = work.token_count(),
                     .document_count = work.document_count(),
                     .images = work.take_images(),
                     .skipped_count = work.skipped_count()};
  copy.key = key_with_images(key, copy.images);
  return copy;
}

}  // namespace jige::train
