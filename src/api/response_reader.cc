#include "api/response_reader.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"

namespace jige::api {
namespace {

constexpr size_t kHeadBytesMax = 64 * 1024;
constexpr size_t kLineBytesMax = 8 * 1024;
constexpr size_t kEventBytesMax = size_t{16} << 20;
constexpr uint64_t kBodyBytesMax = uint64_t{1} << 40;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <typename T>
bool read_number(std::string_view text, T& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

Status ResponseReader::feed(std::string_view bytes) {
  // What was read goes all at once: what is left is moved for every call, not for every chunk.
  pending_.erase(0, read_);
  searched_ -= std::exchange(read_, 0);
  pending_.append(bytes);
  while (state_ != State::kDone) {
    JIGE_TRY(const bool more, step());
    if (!more) return {};
  }
  if (unread_bytes() == 0) return {};
  return fail(Code::kCorrupt, "the server sent {} bytes behind the end of its answer",
              unread_bytes());
}

Status ResponseReader::end_of_stream() {
  leaves_connection_ = false;
  if (state_ == State::kUntilClose) state_ = State::kDone;
  if (state_ == State::kDone) return {};
  return fail(Code::kUnavailable,
              "the server closed the connection before its answer was complete");
}

Result<bool> ResponseReader::step() {
  switch (state_) {
    case State::kHead:
      return read_head();
    case State::kLength:
      return read_counted(State::kDone);
    case State::kChunkSize:
      return read_chunk_size();
    case State::kChunk:
      return read_counted(State::kChunkEnd);
    case State::kChunkEnd: {
      JIGE_TRY(const std::optional<std::string_view> line, take_line());
      if (!line) return false;
      if (!line->empty()) return fail(Code::kCorrupt, "a chunk of the body is longer than it says");
      state_ = State::kChunkSize;
      return true;
    }
    case State::kTrailer:
      return read_trailer();
    case State::kUntilClose:
      body_.append(pending_, read_);
      read_ = searched_ = pending_.size();
      return false;
    case State::kDone:
      return false;
  }
  return false;
}

Result<std::optional<std::string_view>> ResponseReader::take_until(std::string_view mark,
                                                                   size_t bytes_max,
                                                                   std::string_view what) {
  // The mark may have begun at the end of what was searched.
  const size_t from = std::max(read_ + mark.size() - 1, searched_) - (mark.size() - 1);
  const size_t end = pending_.find(mark, from);
  const size_t size = std::min(end, pending_.size()) - read_;
  if (size > bytes_max) return fail(Code::kCorrupt, "{} has more than {} bytes", what, bytes_max);
  if (end == std::string::npos) {
    searched_ = pending_.size();
    return std::nullopt;
  }
  const std::string_view taken = std::string_view(pending_).substr(read_, size);
  read_ = searched_ = end + mark.size();
  return taken;
}

Result<std::optional<std::string_view>> ResponseReader::take_line() {
  return take_until("\r\n", kLineBytesMax, "a line of the body's framing");
}

Result<bool> ResponseReader::read_head() {
  JIGE_TRY(const std::optional<std::string_view> head,
           take_until("\r\n\r\n", kHeadBytesMax, "the head of the answer"));
  if (!head) return false;
  JIGE_DO(parse_head(*head));
  if (status_ < 200) {  // an interim answer; the real one follows
    status_ = 0;
    fields_.clear();
    return true;
  }
  JIGE_DO(choose_body());
  return true;
}

Status ResponseReader::parse_head(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const bool http = line.starts_with("HTTP/1.1 ") || line.starts_with("HTTP/1.0 ");
  if (!http || !read_number(line.substr(9, 3), status_) || status_ < 100) {
    return fail(Code::kCorrupt, "the server does not speak HTTP/1.1: its answer begins \"{}\"",
                line.substr(0, 40));
  }
  leaves_connection_ = line.starts_with("HTTP/1.1");
  head.remove_prefix(std::min(line.size() + 2, head.size()));
  while (!head.empty()) {
    const std::string_view field = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(field.size() + 2, head.size()));
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos) {
      return fail(Code::kCorrupt, "a field in the head of the answer has no colon");
    }
    fields_.emplace_back(field.substr(0, colon), trimmed(field.substr(colon + 1)));
    const auto& [name, value] = fields_.back();
    const bool closes = lower_ascii(value).find("close") != std::string::npos;
    if (closes && lower_ascii(name) == "connection") leaves_connection_ = false;
  }
  return {};
}

Status ResponseReader::choose_body() {
  const std::string_view length = field("content-length");
  if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;
  } else if (lower_ascii(field("transfer-encoding")) == "chunked") {
    state_ = State::kChunkSize;
  } else if (length.empty()) {
    state_ = State::kUntilClose;
  } else if (!read_number(length, left_) || left_ > kBodyBytesMax) {
    return fail(Code::kCorrupt, "the answer's Content-Length is \"{}\"", length.substr(0, 40));
  } else {
    state_ = left_ == 0 ? State::kDone : State::kLength;
  }
  return {};
}

bool ResponseReader::read_counted(State next) {
  const size_t now = static_cast<size_t>(std::min<uint64_t>(left_, unread_bytes()));
  body_.append(pending_, read_, now);
  read_ = searched_ = read_ + now;
  left_ -= now;
  if (left_ > 0) return false;
  state_ = next;
  return true;
}

Result<bool> ResponseReader::read_chunk_size() {
  JIGE_TRY(const std::optional<std::string_view> line, take_line());
  if (!line) return false;
  const std::string_view size = trimmed(line->substr(0, line->find(';')));
  if (!read_number(size, left_, 16) || left_ > kBodyBytesMax) {
    return fail(Code::kCorrupt, "the size of a chunk is \"{}\"", size.substr(0, 40));
  }
  state_ = left_ == 0 ? State::kTrailer : State::kChunk;
  return true;
}

Result<bool> ResponseReader::read_trailer() {
  JIGE_TRY(const std::optional<std::string_view> line, take_line());
  if (line && line->empty()) state_ = State::kDone;
  return line.has_value();
}

std::string_view ResponseReader::field(std::string_view name) const {
  const std::string wanted = lower_ascii(name);
  for (const auto& [key, value] : fields_) {
    if (lower_ascii(key) == wanted) return value;
  }
  return {};
}

Status SseReader::feed(std::string_view bytes, const OnData& on_data) {
  size_t searched = pending_.size();  // without the end of a line
  pending_.append(bytes);
  size_t begin = 0;
  for (;;) {
    const size_t end = pending_.find('\n', searched);
    if (end == std::string::npos) break;
    std::string_view line(pending_.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    JIGE_DO(take_line(line, on_data));
    begin = searched = end + 1;
  }
  pending_.erase(0, begin);
  if (pending_.size() + data_.size() <= kEventBytesMax) return {};
  return fail(Code::kExhausted, "an event of the answer has more than {} bytes", kEventBytesMax);
}

Status SseReader::take_line(std::string_view line, const OnData& on_data) {
  if (line.empty()) {
    if (!std::exchange(has_data_, false)) return {};
    return on_data(std::exchange(data_, {}));
  }
  if (!line.starts_with("data:")) return {};  // names, ids and comments
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_.append(line);
  return {};
}

}  // namespace jige::api
