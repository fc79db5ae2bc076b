#include "serve/row_book.h"

#include <utility>

#include "base/bytes.h"

namespace jige::serve {

GivenRowsRef RowBook::find(const Content& content) {
  const std::lock_guard lock(mutex_);
  return found(content);
}

GivenRowsRef RowBook::found(const Content& content) {
  const auto place = places_.find(content);
  if (place == places_.end()) return nullptr;
  order_.splice(order_.begin(), order_, place->second);
  return place->second->rows;
}

void RowBook::forget_oldest() {
  places_.erase(order_.back().content);
  order_.pop_back();
}

Result<GivenRowsRef> RowBook::add(const Content& content, GivenRows added) {
  const std::lock_guard lock(mutex_);
  if (GivenRowsRef known = found(content)) return known;
  const int64_t count = added.count;
  if (count < 1 || count > options_.id_end - options_.first_id) {
    return fail(Code::kInvalidArgument, "{} rows; there are ids for 1 to {}", count,
                options_.id_end - options_.first_id);
  }
  const int64_t size = std::ssize(added.values) * static_cast<int64_t>(sizeof(float));
  while (!order_.empty() && *bytes_ + size > options_.bytes_max) forget_oldest();
  if (*bytes_ + size > options_.bytes_max) {
    return fail(Code::kExhausted,
                "the images of requests under way take {} of memory and another {}; the limit is "
                "{}: come again when some are answered, or send smaller or fewer images",
                format_bytes(*bytes_), format_bytes(size), format_bytes(options_.bytes_max));
  }
  if (next_id_ + count > options_.id_end) {
    while (!order_.empty()) forget_oldest();
    next_id_ = options_.first_id;
    ++epoch_;
  }
  *bytes_ += size;
  added.first_id = static_cast<int32_t>(next_id_);
  added.mutual = options_.mutual;
  GivenRowsRef rows(new GivenRows(std::move(added)), [bytes = bytes_, size](const GivenRows* gone) {
    delete gone;
    *bytes -= size;
  });
  next_id_ += count;
  order_.push_front({content, rows});
  places_[content] = order_.begin();
  return rows;
}

uint64_t RowBook::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

}  // namespace jige::serve
