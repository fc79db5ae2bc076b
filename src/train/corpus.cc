#include "train/corpus.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace jige::train {

void Corpus::add(formats::TokenFile tokens, std::vector<int64_t> ends, DocumentsOf of) {
  JIGE_CHECK((ends.empty() ? 0 : ends.back()) == tokens.count(), "documents end at {} of {} tokens",
             ends.empty() ? 0 : ends.back(), tokens.count());
  JIGE_CHECK(parts_.empty() || parts_[0].of == of, "pairs beside documents of their own");
  JIGE_CHECK(of == DocumentsOf::kThemselves || ends.size() % 2 == 0, "{} documents in pairs",
             ends.size());
  const int64_t count = tokens.count();
  document_count_ += static_cast<int64_t>(ends.size());
  parts_.push_back(Part{std::move(tokens), std::move(ends), token_count_, of, {}, {}});
  token_count_ += count;
}

void Corpus::add(formats::TokenFile tokens, std::vector<int64_t> ends,
                 std::vector<CorpusImage> images, const std::string& path) {
  add(std::move(tokens), std::move(ends));
  parts_.back().images = std::move(images);
  parts_.back().path = path;
}

int64_t Corpus::index_bytes() const {
  int64_t bytes = document_count_ * static_cast<int64_t>(sizeof(int64_t));
  for (const Part& part : parts_) bytes += image_index_bytes(part.images);
  return bytes;
}

bool Corpus::has_images() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return !part.images.empty(); });
}

Corpus::PartImages Corpus::images_at(int64_t begin, int64_t count) const {
  const Part& part = part_at(begin);
  const auto first =
      std::ranges::lower_bound(part.images, begin - part.begin, {}, &CorpusImage::token);
  const auto end =
      std::ranges::lower_bound(part.images, begin - part.begin + count, {}, &CorpusImage::token);
  return {.part = &part, .images = {first, end}};
}

const Corpus::Part& Corpus::part_at(int64_t position) const {
  JIGE_CHECK(position >= 0 && position < token_count_, "token {} of {}", position, token_count_);
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), position,
                       [](int64_t value, const Part& part) { return value < part.begin; });
  return *std::prev(after);
}

int64_t Corpus::document_end(int64_t position) const {
  const Part& part = part_at(position);
  return part.begin + *std::upper_bound(part.ends.begin(), part.ends.end(), position - part.begin);
}

Status Corpus::read(int64_t begin, std::span<int32_t> ids) const {
  if (ids.empty()) return {};
  const Part& part = part_at(begin);
  return part.tokens.read(begin - part.begin, ids);
}

Status Corpus::read_learned(int64_t begin, std::span<uint8_t> learned) const {
  if (learned.empty()) return {};
  const Part& part = part_at(begin);
  return part.tokens.read_mask(begin - part.begin, learned);
}

}  // namespace jige::train
