#include "grammar/code_points.h"

#include <algorithm>

#include "text/unicode.h"

namespace jige::grammar {
namespace {

using Range = CodePoints::Range;

// Cuts [first, last] where UTF-8 forms change their size and around surrogates.
std::vector<Range> by_size(Range range) {
  static constexpr Range kSizes[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kCodePointMax}};
  std::vector<Range> parts;
  for (const Range& size : kSizes) {
    const Range part = {std::max(range.first, size.first), std::min(range.last, size.last)};
    if (part.first <= part.last) parts.push_back(part);
  }
  return parts;
}

// Cuts a range of one size until each part is a product of byte ranges.
void cut(Range range, int size, std::vector<Range>& parts) {
  for (int i = 1; i < size; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((range.first & ~low) == (range.last & ~low)) continue;
    if ((range.first & low) != 0) {
      cut({range.first, range.first | low}, size, parts);
      cut({(range.first | low) + 1, range.last}, size, parts);
      return;
    }
    if ((range.last & low) != low) {
      cut({range.first, (range.last & ~low) - 1}, size, parts);
      cut({range.last & ~low, range.last}, size, parts);
      return;
    }
  }
  parts.push_back(range);
}

NodeId byte_ranges(GrammarBuilder& builder, Range range, NodeId next) {
  const std::string first = text::to_utf8(range.first), last = text::to_utf8(range.last);
  for (size_t i = first.size(); i-- > 0;) {
    ByteSet set;
    for (int byte = static_cast<uint8_t>(first[i]); byte <= static_cast<uint8_t>(last[i]); ++byte) {
      set.set(static_cast<size_t>(byte));
    }
    next = builder.bytes(set, next);
  }
  return next;
}

}  // namespace

CodePoints& CodePoints::add(char32_t first, char32_t last) {
  std::vector<Range> merged;
  Range wide = {first, last};
  for (const Range& range : ranges_) {
    if (range.last + 1 < wide.first || wide.last + 1 < range.first) {
      merged.push_back(range);
    } else {
      wide = {std::min(wide.first, range.first), std::max(wide.last, range.last)};
    }
  }
  merged.insert(std::ranges::lower_bound(merged, wide), wide);
  ranges_ = std::move(merged);
  return *this;
}

CodePoints& CodePoints::add(const CodePoints& other) {
  for (const Range& range : other.ranges_) add(range.first, range.last);
  return *this;
}

CodePoints CodePoints::without(const CodePoints& other) const {
  CodePoints left = *this;
  for (const Range& hole : other.ranges_) {
    std::vector<Range> cut_ranges;
    for (const Range& range : left.ranges_) {
      if (range.first < hole.first) {
        cut_ranges.push_back({range.first, std::min<char32_t>(range.last, hole.first - 1)});
      }
      if (range.last > hole.last) {
        cut_ranges.push_back({std::max<char32_t>(range.first, hole.last + 1), range.last});
      }
    }
    left.ranges_ = std::move(cut_ranges);
  }
  return left;
}

bool CodePoints::contains(char32_t character) const {
  return std::ranges::any_of(ranges_, [&](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

NodeId CodePoints::node(GrammarBuilder& builder, NodeId next) const {
  ByteSet ascii;
  std::vector<NodeId> branches;
  for (const Range& range : ranges_) {
    for (const Range& part : by_size(range)) {
      if (part.last < 0x80) {
        for (char32_t c = part.first; c <= part.last; ++c) ascii.set(c);
        continue;
      }
      std::vector<Range> products;
      cut(part, static_cast<int>(text::to_utf8(part.first).size()), products);
      for (const Range& product : products) {
        branches.push_back(byte_ranges(builder, product, next));
      }
    }
  }
  if (ascii.any()) branches.push_back(builder.bytes(ascii, next));
  return builder.split(branches);
}

}  // namespace jige::grammar
