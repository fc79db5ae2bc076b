// ImageQueue: whose images are decoded next, and whose the model reads next. It decides; who asks
// it does the work (image_reader.h).
//
// A request waits to be decoded, is decoded, waits for the model and is read. First comes who is
// due first:
//
//   due = came + kDueSecondsPerToken · tokens of its images
//
// so that small images pass large ones that came not much before them, and none waits for ever:
// what comes later than an image is due is due behind it. Decoding begins where pixels are left.
// Invariant: the requests that are decoded, or are being decoded, have pixels_max pixels together
// at most, but for one alone. Threads: none; no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace jige::api {

class ImageQueue {
 public:
  // A large image has a thousand tokens or more, a small one a few dozen.
  static constexpr double kDueSecondsPerToken = 0.02;

  struct Limits {
    size_t requests_max = 64;              // that wait, for decoding or for the model
    size_t bytes_max = size_t{128} << 20;  // of files that are not decoded yet
    int64_t pixels_max = 96'000'000;       // decoded
  };
  struct Size {
    size_t bytes = 0;
    int64_t pixels = 0;
    int64_t tokens = 0;
  };
  using Id = uint64_t;

  explicit ImageQueue(Limits limits) : limits_(limits) {}

  // Takes a request; nothing where there is no room. One of more bytes than bytes_max is taken
  // where no other has any.
  std::optional<Id> add(const Size& size, double now_s);
  // Who is to be decoded, and is from then on; nothing where nobody waits for it, or who is due
  // first finds no room for its pixels.
  std::optional<Id> next_to_decode();
  // REQUIRES: next_to_decode() gave it.
  void decoded(Id id);
  // Who is to be read, of those with so many tokens at most, and is from then on.
  std::optional<Id> next_to_read(int64_t tokens_max = INT64_MAX);
  // Forgets a request, whatever it does. REQUIRES: it is there.
  void remove(Id id) { requests_.erase(id); }

  // Those that nobody works on.
  std::vector<Id> idle() const;
  // Those that are not being read.
  size_t waiting_count() const;

 private:
  enum class State { kNew, kDecoding, kDecoded, kReading };
  struct Request {
    Size size;
    double due_s = 0;
    State state = State::kNew;
  };
  using Requests = std::map<Id, Request>;  // as they came

  Requests::iterator first_due(State state, int64_t tokens_max);
  size_t file_bytes() const;
  int64_t decoded_pixels() const;

  const Limits limits_;
  Requests requests_;
  Id next_id_ = 1;
};

}  // namespace jige::api
