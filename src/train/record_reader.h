// The raw documents of a text or JSONL file, one after another, in bounded memory.
//
// JSONL (.jsonl, .ndjson): every line that is not blank is a record.
// Text (anything else): `split` says where documents end: at the end of the file, at runs of blank
// lines, or at lines that hold only the separator (such as "<|endoftext|>"). A document longer than
// RecordOptions::piece_bytes comes in pieces that end where RecordOptions::piece_end says, else at
// line ends (or, inside very long lines, at characters). Where piece_end knows no place, a piece
// grows up to kUncutBytesMax.
// Documents of white space only are left out. "\r\n" counts as "\n"; the newline at the end of a
// document and the byte order mark that some editors put before the first line are no part of it.
//
// A packed file is kUnsupported, whatever it is called. A text line that is not valid UTF-8 is
// kCorrupt naming file:line, or is left out and counted where skip_bad is set. JSON is checked by
// the encoder (document_encoder.h). Threads: one reader per thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/line_reader.h"

namespace jige::train {

inline constexpr size_t kPieceBytes = size_t{1} << 20;
inline constexpr size_t kUncutBytesMax = size_t{8} << 20;
inline constexpr size_t kJsonLineBytesMax = size_t{256} << 20;

enum class TextSplit { kFile, kBlankLines, kSeparator };

enum class SourceKind { kText, kJsonl, kTokens };

// The kind of a file by its name. Fails with kUnsupported for archives, tables and plain .json,
// saying what to convert them to.
Result<SourceKind> source_kind(const std::string& path);

struct RecordOptions {
  TextSplit split = TextSplit::kFile;
  std::string separator;  // for kSeparator: the whole line, white space around it ignored
  bool skip_bad = false;
  // Where a piece may end: behind the first character of `text` and before its end. `continues`: it
  // begins behind an earlier piece. Nothing where more of the document must be seen.
  using PieceEnd = std::function<std::optional<size_t>(std::string_view text, bool continues)>;
  PieceEnd piece_end = {};
  size_t piece_bytes = kPieceBytes;
};

struct Record {
  std::string text;  // one JSON line, or a text document or a piece of one
  bool json = false;
  bool begins = true;  // first piece of its document
  bool ends = true;    // last piece of its document; its text may be empty
  int64_t line = 0;    // where it starts, from 1
};

class RecordReader {
 public:
  // REQUIRES: source_kind(path) is text or JSONL.
  static Result<RecordReader> open(const std::string& path, const RecordOptions& options);

  // Reads the next record; false at the end of the file.
  Result<bool> next(Record& record);
  int64_t bytes_read() const { return lines_.bytes_read(); }
  // Lines left out so far.
  int64_t skipped_count() const { return skipped_count_; }
  // Lines where pieces began that were cut where piece_end knew no place.
  const std::vector<int64_t>& forced_lines() const { return forced_lines_; }

 private:
  RecordReader(std::string path, RecordOptions options, bool json, LineReader lines);
  Result<bool> next_json(Record& record);
  Result<bool> next_text(Record& record);
  // Whether a whole line ends a document.
  bool is_border(const Line& line) const;
  // Hands out the first `size` bytes of what has been gathered.
  void emit(Record& record, size_t size, bool ends);
  // Where a piece of what has been gathered may end; 0 for nowhere yet.
  size_t piece_size() const;

  std::string path_;
  RecordOptions options_;
  bool json_ = false;
  LineReader lines_;
  std::string gathered_;
  size_t piece_from_ = 0;  // so much is gathered before a piece is looked for
  int64_t gathered_line_ = 0;
  bool inside_document_ = false;  // a piece of the open document was handed out
  bool dropping_line_ = false;    // in a long line that was found bad
  bool at_end_ = false;
  int64_t skipped_count_ = 0;
  std::vector<int64_t> forced_lines_;
};

}  // namespace jige::train
