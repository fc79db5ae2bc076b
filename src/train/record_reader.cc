#include "train/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/file_marks.h"
#include "text/unicode.h"

namespace jige::train {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

tl::unexpected<Error> packed_file(const std::string& path) {
  return fail(Code::kUnsupported, "{}: is a packed file; unpack it first", path);
}

tl::unexpected<Error> bad_encoding(const std::string& path, const Line& line) {
  return fail(Code::kCorrupt, "{}:{}: is not valid UTF-8; {}", path, line.number,
              encoding_remedy(line.text, line.number == 1));
}

std::string lower_extension(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) return {};
  return lower_ascii(path.substr(dot));
}

}  // namespace

Result<SourceKind> source_kind(const std::string& path) {
  const std::string extension = lower_extension(path);
  if (extension == ".jsonl" || extension == ".ndjson") return SourceKind::kJsonl;
  if (extension == ".bin") return SourceKind::kTokens;
  constexpr std::array kPacked = {".gz", ".zst", ".xz", ".bz2", ".zip", ".tar", ".7z"};
  constexpr std::array kBinary = {".parquet", ".arrow", ".npy", ".pt", ".pdf", ".docx"};
  if (std::find(kPacked.begin(), kPacked.end(), extension) != kPacked.end()) {
    return packed_file(path);
  }
  const auto refuse = [&](const std::string& remedy) {
    return fail(Code::kUnsupported,
                "{}: cannot be read as training data; give text (.txt), one JSON object a line "
                "(.jsonl) or tokens (.bin){}",
                path, remedy);
  };
  if (std::find(kBinary.begin(), kBinary.end(), extension) != kBinary.end()) return refuse("");
  if (extension == ".json") {
    return refuse(fmt::format(
        ": `jq -c 'if type == \"array\" then .[] else . end' {} > data.jsonl` writes its "
        "records as lines",
        path));
  }
  if (extension == ".csv" || extension == ".tsv") {
    return refuse(
        fmt::format(": `python3 -c 'import csv, json, sys; [print(json.dumps(r)) for r in "
                    "csv.DictReader(sys.stdin{})]' < {} > data.jsonl` writes its rows as lines",
                    extension == ".tsv" ? ", delimiter=\"\\t\"" : "", path));
  }
  return SourceKind::kText;
}

RecordReader::RecordReader(std::string path, RecordOptions options, bool json, LineReader lines)
    : path_(std::move(path)),
      options_(std::move(options)),
      json_(json),
      lines_(std::move(lines)),
      piece_from_(options_.piece_bytes) {}

Result<RecordReader> RecordReader::open(const std::string& path, const RecordOptions& options) {
  JIGE_TRY(const SourceKind kind, source_kind(path));
  const bool json = kind == SourceKind::kJsonl;
  JIGE_TRY(LineReader lines,
           LineReader::open(path, json ? kJsonLineBytesMax : options.piece_bytes));
  return RecordReader(path, options, json, std::move(lines));
}

Result<bool> RecordReader::next(Record& record) {
  return json_ ? next_json(record) : next_text(record);
}

Result<bool> RecordReader::next_json(Record& record) {
  Line line;
  for (;;) {
    JIGE_TRY(const bool more, lines_.next(line));
    if (!more) return false;
    if (line.begins && line.number == 1 && begins_as_packed(line.text)) return packed_file(path_);
    if (!line.begins) continue;  // the rest of a line that was too long
    if (!line.ends) {
      if (!options_.skip_bad) {
        return fail(Code::kExhausted, "{}:{}: a line longer than {} MiB", path_, line.number,
                    kJsonLineBytesMax >> 20);
      }
      ++skipped_count_;
      continue;
    }
    if (trimmed(line.text).empty()) continue;
    if (line.number == 1 && begins_as_utf16(line.text) && !options_.skip_bad) {
      return bad_encoding(path_, line);
    }
    record = Record{.text = std::string(line.text), .json = true, .line = line.number};
    return true;
  }
}

bool RecordReader::is_border(const Line& line) const {
  if (!line.begins || !line.ends) return false;
  switch (options_.split) {
    case TextSplit::kFile:
      return false;
    case TextSplit::kBlankLines:
      return trimmed(line.text).empty();
    case TextSplit::kSeparator:
      return trimmed(line.text) == trimmed(options_.separator);
  }
  return false;
}

void RecordReader::emit(Record& record, size_t size, bool ends) {
  std::string rest = gathered_.substr(size);
  gathered_.resize(size);
  record = Record{.text = std::exchange(gathered_, std::move(rest)),
                  .begins = !inside_document_,
                  .ends = ends,
                  .line = gathered_line_};
  gathered_line_ += std::count(record.text.begin(), record.text.end(), '\n');
  if (ends && record.text.ends_with('\n')) record.text.pop_back();
  inside_document_ = !ends;
  piece_from_ = options_.piece_bytes;
}

size_t RecordReader::piece_size() const {
  if (!options_.piece_end) return gathered_.size();
  const auto end = options_.piece_end(gathered_, inside_document_);
  if (end) return *end;
  return gathered_.size() < kUncutBytesMax ? 0 : gathered_.size();
}

Result<bool> RecordReader::next_text(Record& record) {
  Line line;
  while (!at_end_) {
    JIGE_TRY(const bool more, lines_.next(line));
    if (!more) {
      at_end_ = true;
      break;
    }
    if (line.begins && line.number == 1 && line.text.starts_with(kByteOrderMark)) {
      line.text.remove_prefix(kByteOrderMark.size());
    }
    if (line.begins && line.number == 1 && begins_as_packed(line.text)) return packed_file(path_);
    if (is_border(line)) {
      if (inside_document_ || !trimmed(gathered_).empty()) {
        emit(record, gathered_.size(), true);
        return true;
      }
      gathered_.clear();
      continue;
    }
    if (line.begins) dropping_line_ = false;
    if (dropping_line_) continue;
    if (!text::is_valid_utf8(line.text)) {
      if (!options_.skip_bad) return bad_encoding(path_, line);
      ++skipped_count_;
      dropping_line_ = true;
      continue;
    }
    if (gathered_.empty()) gathered_line_ = line.number;
    gathered_.append(line.text);
    if (line.ends) gathered_.push_back('\n');
    if (gathered_.size() < piece_from_) continue;
    if (inside_document_ || !trimmed(gathered_).empty()) {
      const size_t size = piece_size();
      if (size == 0) {
        piece_from_ = gathered_.size() + options_.piece_bytes;
        continue;
      }
      if (options_.piece_end && size == gathered_.size()) forced_lines_.push_back(gathered_line_);
      // Where all went, the next line may be a border, which then comes as an empty last piece.
      emit(record, size, false);
      return true;
    }
    gathered_.clear();
  }
  if (!inside_document_ && trimmed(gathered_).empty()) return false;
  emit(record, gathered_.size(), true);
  return true;
}

}  // namespace jige::train
