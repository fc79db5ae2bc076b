#include "text/image_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace jige::text {

namespace {

// Places in a text, as they move with it; ascending.
class MovedPlaces {
 public:
  explicit MovedPlaces(const std::vector<size_t>& places) : places_(places) {}

  bool next_below(size_t end) const { return next_ < places_.size() && places_[next_] < end; }
  // Those up to `end`, of a text that was kept from `from` on and stands at `to` now. What was
  // inside of a token that went stands where its text ends.
  void move(size_t from, size_t end, size_t to) {
    for (; next_ < places_.size() && places_[next_] <= end; ++next_) {
      moved_.push_back(to + (places_[next_] > from ? places_[next_] - from : 0));
    }
  }
  std::vector<size_t> take() { return std::move(moved_); }

 private:
  const std::vector<size_t>& places_;
  size_t next_ = 0;
  std::vector<size_t> moved_;
};

}  // namespace

void put_image_text(const ImageText& image, std::string& text, std::vector<size_t>& guards,
                    std::vector<size_t>* places) {
  if (image.token.empty()) return;
  std::string result;
  const std::vector<size_t> none;
  MovedPlaces guard(guards);
  MovedPlaces other(places ? *places : none);
  size_t from = 0;
  const auto copy_until = [&](size_t end) {
    guard.move(from, end, result.size());
    other.move(from, end, result.size());
    result.append(text, from, end - from);
    from = end;
  };
  for (size_t at = text.find(image.token); at != text.npos; at = text.find(image.token, from)) {
    copy_until(at);
    const size_t end = at + image.token.size();
    if (guard.next_below(end)) {
      copy_until(at + 1);
      continue;
    }
    result += image.text;
    from = end;
  }
  copy_until(text.size());
  text = std::move(result);
  guards = guard.take();
  if (places) *places = other.take();
}

}  // namespace jige::text
