// ResponseReader: an HTTP/1.1 answer from bytes as they come; SseReader: the events of its body.
//
//   ResponseReader reader;
//   JIGE_DO(reader.feed(bytes));
//   if (reader.head_complete() && reader.status() == 200) events.feed(reader.take_body(), on_data);
//
// Bodies by length, in chunks, or up to the end of the connection. Bytes behind the answer are
// refused: a client here sends one request at a time.
// Invariants: heads and lines are bounded; a body is only as long as the caller lets it lie. Time
// is linear in the bytes, however they are cut and however small the chunks are. Threads: none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace jige::api {

class ResponseReader {
 public:
  // Fails with kCorrupt on what is no HTTP answer, naming the place.
  Status feed(std::string_view bytes);
  // The peer has closed. Fails with kUnavailable when the answer is not complete.
  Status end_of_stream();

  bool head_complete() const { return state_ != State::kHead; }
  bool complete() const { return state_ == State::kDone; }
  // 0 before the head is complete.
  int status() const { return status_; }
  // Whether the server keeps the connection behind a complete answer.
  bool leaves_connection() const { return leaves_connection_; }
  // The value of a field of the head, whatever its case; empty when it is not there.
  std::string_view field(std::string_view name) const;
  // All fields of the head, in their order.
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }
  // Moves out the part of the body that has come.
  std::string take_body() { return std::exchange(body_, {}); }
  size_t body_bytes() const { return body_.size(); }

 private:
  enum class State { kHead, kLength, kChunkSize, kChunk, kChunkEnd, kTrailer, kUntilClose, kDone };

  // One step; false when more bytes are needed.
  Result<bool> step();
  Result<bool> read_head();
  Result<bool> read_chunk_size();
  Result<bool> read_trailer();
  bool read_counted(State next);
  // Reads what stands before the mark, and the mark; nothing where that is not there yet. What it
  // gives lasts until feed() returns. Fails with kCorrupt where that is longer than it may be.
  Result<std::optional<std::string_view>> take_until(std::string_view mark, size_t bytes_max,
                                                     std::string_view what);
  Result<std::optional<std::string_view>> take_line();
  size_t unread_bytes() const { return pending_.size() - read_; }
  Status parse_head(std::string_view head);
  Status choose_body();

  State state_ = State::kHead;
  std::string pending_;
  size_t read_ = 0;      // of pending_
  size_t searched_ = 0;  // of pending_, without the mark that is looked for
  std::string body_;
  std::vector<std::pair<std::string, std::string>> fields_;
  int status_ = 0;
  bool leaves_connection_ = false;
  uint64_t left_ = 0;  // of a counted body or chunk
};

// Server-sent events: calls back with the data of each. Lines end with LF or CRLF.
class SseReader {
 public:
  using OnData = std::function<Status(std::string_view data)>;
  // Fails with kExhausted on an event of more than 16 MiB, and as the callback does.
  Status feed(std::string_view bytes, const OnData& on_data);

 private:
  Status take_line(std::string_view line, const OnData& on_data);
  std::string pending_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace jige::api
