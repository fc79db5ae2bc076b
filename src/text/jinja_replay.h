// What one loop over a watched list read and wrote as a run went through it, so that another run
// that comes to the loop can pass over its first turns.
//
// A turn reads cells from outside the loop: names at the top of the template and attributes of the
// namespaces that these hold. Where the cells that the first turns read before they wrote them are
// as they were, and these turns looked at no message that is another now, they write the same text
// and the same attributes again.
//
// Threads: one at a time, with its Interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace jige::text::jinja {

// A name at the top of the template, or an attribute of the namespace that it holds.
struct Cell {
  uint32_t name = 0;
  std::optional<std::string> attribute = {};
  bool operator==(const Cell&) const = default;
};

// What was found in a cell, at first in `turn`.
struct CellRead {
  Cell cell;
  size_t turn = 0;
};

// A number in a cell was compared, and how that ended holds for all of low to high.
struct CellBound {
  Cell cell;
  size_t turn = 0;
  int64_t low = 0;
  int64_t high = 0;
};

struct LoopRecord {
  size_t statement = 0;    // the loop, in the body of the template
  size_t first_place = 0;  // where its first turn begins, of all that were noted
  size_t place_count = 0;
  std::vector<std::pair<Namespace*, uint32_t>> owners;  // the name that holds each namespace
  std::vector<CellRead> reads;
  std::vector<std::vector<CellBound>> bounds;  // by cell, each within the one before it
  std::vector<CellRead> writes;
  std::vector<size_t> lowest;  // the first message that turns look at from each on; when closed
  bool is_open = true;         // what comes is noted

  // The name that holds a namespace, or nothing.
  std::optional<uint32_t> owner(const Namespace& one) const;
  // Notes that a cell was read, or compared with a number, unless this loop wrote it before.
  void note_read(Cell cell, size_t turn);
  void note_bound(CellBound bound);
  void note_write(Cell cell, size_t turn);
};

// The numbers for which `number op other` is `holds`; nothing where the bounds cannot be told.
std::optional<std::pair<int64_t, int64_t>> numbers_where(std::string_view op, int64_t other,
                                                         bool holds);

}  // namespace jige::text::jinja
