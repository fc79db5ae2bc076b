#include "api/image_queue.h"

#include <algorithm>

namespace jige::api {

std::optional<ImageQueue::Id> ImageQueue::add(const Size& size, double now_s) {
  const size_t bytes = file_bytes();
  if (waiting_count() >= limits_.requests_max) return std::nullopt;
  if (bytes > 0 && bytes + size.bytes > limits_.bytes_max) return std::nullopt;
  const double due_s = now_s + kDueSecondsPerToken * static_cast<double>(size.tokens);
  requests_[next_id_] = {.size = size, .due_s = due_s};
  return next_id_++;
}

std::optional<ImageQueue::Id> ImageQueue::next_to_decode() {
  const auto first = first_due(State::kNew, INT64_MAX);
  if (first == requests_.end()) return std::nullopt;
  const int64_t pixels = decoded_pixels();
  if (pixels > 0 && pixels + first->second.size.pixels > limits_.pixels_max) return std::nullopt;
  first->second.state = State::kDecoding;
  return first->first;
}

void ImageQueue::decoded(Id id) { requests_.at(id).state = State::kDecoded; }

std::optional<ImageQueue::Id> ImageQueue::next_to_read(int64_t tokens_max) {
  const auto first = first_due(State::kDecoded, tokens_max);
  if (first == requests_.end()) return std::nullopt;
  first->second.state = State::kReading;
  return first->first;
}

std::vector<ImageQueue::Id> ImageQueue::idle() const {
  std::vector<Id> ids;
  for (const auto& [id, request] : requests_) {
    const bool waits = request.state == State::kNew || request.state == State::kDecoded;
    if (waits) ids.push_back(id);
  }
  return ids;
}

size_t ImageQueue::waiting_count() const {
  return static_cast<size_t>(std::ranges::count_if(
      requests_, [](const auto& entry) { return entry.second.state != State::kReading; }));
}

// Of those that are due at one time, who came first.
ImageQueue::Requests::iterator ImageQueue::first_due(State state, int64_t tokens_max) {
  auto first = requests_.end();
  for (auto it = requests_.begin(); it != requests_.end(); ++it) {
    if (it->second.state != state || it->second.size.tokens > tokens_max) continue;
    if (first == requests_.end() || it->second.due_s < first->second.due_s) first = it;
  }
  return first;
}

size_t ImageQueue::file_bytes() const {
  size_t bytes = 0;
  for (const auto& [id, request] : requests_) {
    const bool has_files = request.state == State::kNew || request.state == State::kDecoding;
    if (has_files) bytes += request.size.bytes;
  }
  return bytes;
}

int64_t ImageQueue::decoded_pixels() const {
  int64_t pixels = 0;
  for (const auto& [id, request] : requests_) {
    if (request.state != State::kNew) pixels += request.size.pixels;
  }
  return pixels;
}

}  // namespace jige::api
