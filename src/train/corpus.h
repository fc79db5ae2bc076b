// The tokens of all files of a corpus as one address range, with the borders of documents.
//
// Threads: immutable once filled; const functions from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/token_bin.h"
#include "train/image_index.h"

namespace jige::train {

// How the documents of a file belong together.
enum class DocumentsOf {
  kThemselves,
  kPairs,  // in twos: the chosen answer with its prompt, then the rejected one with it
};

class Corpus {
 public:
  // One file's tokens, at [begin, begin + tokens.count()) of the corpus.
  struct Part {
    formats::TokenFile tokens;
    std::vector<int64_t> ends;  // of documents, within the file
    int64_t begin = 0;
    DocumentsOf of = DocumentsOf::kThemselves;
    std::vector<CorpusImage> images;  // by their tokens
    std::string path;                 // of the tokens, beside which images may stand
  };

  // REQUIRES: `ends` ascend and the last is the file's token count (document_index.h); of pairs
  // their number is even.
  void add(formats::TokenFile tokens, std::vector<int64_t> ends,
           DocumentsOf of = DocumentsOf::kThemselves);
  // The same of documents with images, in the order of their tokens, of a file at `path`.
  void add(formats::TokenFile tokens, std::vector<int64_t> ends, std::vector<CorpusImage> images,
           const std::string& path);

  const std::vector<Part>& parts() const { return parts_; }
  int64_t token_count() const { return token_count_; }
  int64_t document_count() const { return document_count_; }
  // What is held of it: where documents end, and images. Tokens are mapped.
  int64_t index_bytes() const;
  // Whether all files hold pairs, or none.
  bool holds_pairs() const { return !parts_.empty() && parts_[0].of == DocumentsOf::kPairs; }
  // Where the document ends that holds this token. REQUIRES: position < token_count().
  int64_t document_end(int64_t position) const;

  bool has_images() const;
  // Those whose tokens begin in [begin, begin + count), and the part that they are of.
  // REQUIRES: the range lies in one part.
  struct PartImages {
    const Part* part = nullptr;
    std::span<const CorpusImage> images;
  };
  PartImages images_at(int64_t begin, int64_t count) const;

  // Copies the tokens at [begin, begin + ids.size()), and whether each is to be learned.
  // Fails as TokenFile::read. REQUIRES: the range lies in one part.
  Status read(int64_t begin, std::span<int32_t> ids) const;
  Status read_learned(int64_t begin, std::span<uint8_t> learned) const;

 private:
  const Part& part_at(int64_t position) const;

  std::vector<Part> parts_;
  int64_t token_count_ = 0;
  int64_t document_count_ = 0;
};

}  // namespace jige::train
