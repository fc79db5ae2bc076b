// ImagePlaces: where the tokens of a sequence with images stand in time, row and column, by which
// heads of some models turn (Qwen2-VL and what came after it).
//
// A token of text has one place p in all three, and what follows it p + 1. The rows of an image of
// h x w, whose first one would have p, have (p, p + y, p + x); what follows them goes on at
// p + max(h, w). Of a head's pairs of columns each turns by one of the three (PairPlaces).
// Invariant: no place is above the token's index in the sequence, which stays what the key/value
// cache goes by. Places of a sequence's beginning do not depend on what follows it.
// Threads: values; const.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace jige::model {

using TokenPlace = std::array<int32_t, 3>;  // time, row, column

// Of each pair of columns that turn: by which element of a TokenPlace.
using PairPlaces = std::vector<uint8_t>;

// An image's rows in a sequence, line by line.
struct ImageGrid {
  int32_t begin = 0;  // index of the first
  int32_t rows = 0;
  int32_t columns = 0;
  int32_t end() const { return begin + rows * columns; }
};

class ImagePlaces {
 public:
  // REQUIRES: ascending, each behind the one before; rows and columns are positive.
  explicit ImagePlaces(const std::vector<ImageGrid>& grids);

  // REQUIRES: index >= 0.
  TokenPlace at(int32_t index) const;

 private:
  struct Image {
    ImageGrid grid;
    int32_t place = 0;   // of its first row
    int32_t behind = 0;  // of what follows it
  };
  std::vector<Image> images_;
};

}  // namespace jige::model
