// Tokenised copies of text and JSONL files, made once and kept.
//
// A file's copy is CACHE/<stem>-<key>.bin (formats/token_bin.h) with .mask for JSONL, .documents
// (document_index.h) and, where it may have images, .image-list and .pictures (image_index.h). The
// key is the XXH64 of the file's content, the tokenizer's files and the options that decide the
// tokens, so a changed file or tokenizer gets a new copy and an unchanged one is never made twice;
// a copy that is not whole, or one of whose images has changed, is made anew. Work is streamed in
// bounded memory; documents are encoded in parallel and written in order, so the copy does not
// depend on threads. Nothing is in place before it is whole. Threads: one call at a time per cache
// folder; several processes may share a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "text/tokenizer.h"
#include "train/document_encoder.h"
#include "train/image_index.h"
#include "train/record_reader.h"

namespace jige::train {

struct TokenizeOptions {
  std::string cache_folder;
  std::string tokenizer_folder;  // its files enter the key
  std::string image_folder;      // of the model that reads images; its files enter it, too
  RecordOptions records;
  EncoderOptions encoder;
  // Called between batches with the bytes of the file done and in all; returns whether to go on.
  std::function<bool(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct TokenizedFile {
  std::string path;  // of the token file
  uint64_t key = 0;  // of source, tokenizer, options and images
  bool from_cache = false;
  int64_t token_count = 0;
  int64_t document_count = 0;
  std::vector<CorpusImage> images;
  int64_t skipped_count = 0;  // bad lines left out; 0 when from the cache
};

// The XXH64 of a whole file's bytes, read in pieces.
Result<uint64_t> hash_file(const std::string& path);

// Tokenises a text or JSONL file, or finds its copy. Fails as RecordReader and DocumentEncoder do,
// naming file:line; with kCancelled when progress says stop; kExhausted on a full disk;
// kUnavailable where the file changes meanwhile.
Result<TokenizedFile> tokenize_file(const std::string& path, const text::Tokenizer& tokenizer,
                                    const TokenizeOptions& options, ThreadTeam& team);

}  // namespace jige::train
