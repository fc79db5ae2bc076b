// Passing over turns of a loop that another run went through (jinja_replay.h).
#include "text/jinja_replay.h"

#include <algorithm>

#include "text/jinja_interpreter.h"

namespace jige::text::jinja {
namespace {

bool has_cell(const std::vector<CellRead>& list, const Cell& cell) {
  return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.cell == cell; });
}

const Value* value_of(const std::vector<std::pair<uint32_t, Value>>& values, uint32_t name) {
  for (const auto& [known, value] : values) {
    if (known == name) return &value;
  }
  return nullptr;
}

// Whether no template can tell two values apart. Namespaces in the same cell take each other's
// place: their attributes are cells of their own.
bool interchangeable(const Value* left, const Value* right) {
  if (!left || !right) return left == right;
  if (left->is(Kind::kNamespace) || right->is(Kind::kNamespace))
    return left->kind() == right->kind();
  if (left->is(Kind::kMacro) && right->is(Kind::kMacro)) {
    const MacroInstance& a = left->as_macro();
    const MacroInstance& b = right->as_macro();
    return a.node == b.node && a.scope == b.scope && a.name == b.name;
  }
  return left->same(*right);
}

// What a cell held at a place.
const Value* value_at(const Place& place, const Cell& cell) {
  const Value* value = value_of(place.values, cell.name);
  if (!cell.attribute || !value || !value->is(Kind::kNamespace)) return value;
  for (const auto& [one, attributes] : place.namespaces) {
    if (one == &value->as_namespace()) return attributes.find(*cell.attribute);
  }
  return nullptr;
}

}  // namespace

std::optional<uint32_t> LoopRecord::owner(const Namespace& one) const {
  for (const auto& [known, name] : owners) {
    if (known == &one) return name;
  }
  return std::nullopt;
}

void LoopRecord::note_read(Cell cell, size_t turn) {
  if (!is_open || has_cell(writes, cell) || has_cell(reads, cell)) return;
  reads.push_back({std::move(cell), turn});
}

void LoopRecord::note_write(Cell cell, size_t turn) {
  if (is_open && !has_cell(writes, cell)) writes.push_back({std::move(cell), turn});
}

void LoopRecord::note_bound(CellBound bound) {
  if (!is_open || has_cell(writes, bound.cell) || has_cell(reads, bound.cell)) return;
  auto found = std::find_if(bounds.begin(), bounds.end(),
                            [&](const auto& list) { return list[0].cell == bound.cell; });
  if (found == bounds.end()) {
    bounds.push_back({std::move(bound)});
    return;
  }
  const CellBound& last = found->back();
  bound.low = std::max(bound.low, last.low);
  bound.high = std::min(bound.high, last.high);
  if (bound.low > last.low || bound.high < last.high) found->push_back(std::move(bound));
}

std::optional<std::pair<int64_t, int64_t>> numbers_where(std::string_view op, int64_t other,
                                                         bool holds) {
  if (other == INT64_MIN || other == INT64_MAX) return std::nullopt;
  if (op == "<") return holds ? std::pair(INT64_MIN, other - 1) : std::pair(other, INT64_MAX);
  if (op == "<=") return holds ? std::pair(INT64_MIN, other) : std::pair(other + 1, INT64_MAX);
  if (op == ">") return holds ? std::pair(other + 1, INT64_MAX) : std::pair(INT64_MIN, other);
  if (op == ">=") return holds ? std::pair(other, INT64_MAX) : std::pair(INT64_MIN, other - 1);
  return std::nullopt;
}

// Namespaces that more than one name leads to, or something else than a name, are too much.
std::optional<std::vector<std::pair<Namespace*, uint32_t>>> Interpreter::namespace_owners() const {
  if (inner_macros_ || budget_.keeps_namespaces()) return std::nullopt;
  std::vector<std::pair<Namespace*, uint32_t>> owners;
  for (const auto& [name, value] : top_->values) {
    if (!value.is(Kind::kNamespace)) continue;
    Namespace* one = &value.as_namespace();
    for (const auto& [known, other] : owners) {
      if (known == one) return std::nullopt;
    }
    for (const auto& [key, held] : one->attributes.entries) {
      if (held.is(Kind::kNamespace)) return std::nullopt;
    }
    owners.emplace_back(one, name);
  }
  return owners;
}

void Interpreter::open_record(size_t statement) {
  auto owners = namespace_owners();
  if (!owners || places_->empty() || places_->back().statement != statement ||
      places_->back().turn != 0) {
    return;
  }
  records_.push_back({.statement = statement,
                      .first_place = places_->size() - 1,
                      .place_count = 1,
                      .owners = std::move(*owners),
                      .reads = {},
                      .bounds = {},
                      .writes = {},
                      .lowest = {}});
  record_ = &records_.back();
}

// A place counts where it is the next one, and nothing hides a namespace by then.
void Interpreter::extend_record() {
  if (!record_) return;
  record_->is_open &= !inner_macros_ && !budget_.keeps_namespaces() &&
                      places_->size() == record_->first_place + record_->place_count + 1;
  record_->place_count += record_->is_open ? 1 : 0;
}

void Interpreter::close_record(LoopState& state) {
  Watch& watch = state.watched.watch();
  watch.seen = std::max(watch.seen, seen_before_);
  if (!record_) return;
  record_->lowest.assign(record_->place_count, Watch::kAll);
  for (size_t turn = record_->place_count - 1; turn > 0; --turn) {
    record_->lowest[turn - 1] =
        std::min(record_->lowest[turn], (*places_)[record_->first_place + turn].lowest);
  }
  record_ = nullptr;
}

void Interpreter::note_name_read(uint32_t name) {
  if (record_) record_->note_read({name}, record_->place_count - 1);
}

void Interpreter::note_attribute_read(const Namespace& one, std::string_view name) {
  if (!record_) return;
  const auto owner = record_->owner(one);
  if (!owner) return;
  Cell cell{*owner, std::string(name)};
  if (held_) {
    *held_ = std::move(cell);
  } else {
    record_->note_read(std::move(cell), record_->place_count - 1);
  }
}

void Interpreter::note_attribute_write(const Namespace& one, std::string_view name,
                                       const Value& value) {
  if (!record_) return;
  if (value.is(Kind::kNamespace)) record_->is_open = false;
  if (const auto owner = record_->owner(one)) {
    record_->note_write({*owner, std::string(name)}, record_->place_count - 1);
  }
}

// Of `name.attribute op other` no more is noted than how it ended.
Result<Value> Interpreter::compared_part(const Expr& part, Scope& scope,
                                         std::optional<Cell>& cell) {
  const bool may_hold =
      record_ && part.kind == ExprKind::kMember && part.parts[0]->kind == ExprKind::kName;
  if (!may_hold) return evaluate(part, scope);
  held_ = &cell;
  auto value = evaluate(part, scope);
  held_ = nullptr;
  return value;
}

void Interpreter::note_compared(const std::optional<Cell>& left_cell, const Value& left,
                                std::string_view op, const std::optional<Cell>& right_cell,
                                const Value& right, bool holds) {
  if (!record_ || (!left_cell && !right_cell)) return;
  const size_t turn = record_->place_count - 1;
  std::optional<std::pair<int64_t, int64_t>> range;
  if (left.is(Kind::kInt) && right.is(Kind::kInt) && !(left_cell && right_cell)) {
    // other < number is number > other.
    std::string turned(op);
    if (right_cell && turned[0] == '<')
      turned[0] = '>';
    else if (right_cell && turned[0] == '>')
      turned[0] = '<';
    range = numbers_where(turned, left_cell ? right.as_int() : left.as_int(), holds);
  }
  for (const auto& cell : {left_cell, right_cell}) {
    if (!cell) continue;
    if (range) {
      record_->note_bound({*cell, turn, range->first, range->second});
    } else {
      record_->note_read(*cell, turn);
    }
  }
}

const Value* Interpreter::cell_value(const Cell& cell) const {
  const Value* value = value_of(top_->values, cell.name);
  if (!cell.attribute || !value) return value;
  return value->is(Kind::kNamespace) ? value->as_namespace().attributes.find(*cell.attribute)
                                     : nullptr;
}

// How many of its first turns would go as they went.
size_t Interpreter::turns_alike(const LoopRecord& record) const {
  const std::vector<Place>& places = *replay_.places;
  const Place& entry = places[record.first_place];
  size_t turns = record.place_count - 1;
  for (const auto& [cell, turn] : record.reads) {
    if (turn < turns && !interchangeable(value_at(entry, cell), cell_value(cell))) turns = turn;
  }
  for (const auto& list : record.bounds) {
    const Value* value = cell_value(list[0].cell);
    if (!value || !value->is(Kind::kInt)) return 0;
    const auto first = std::partition_point(list.begin(), list.end(), [&](const CellBound& one) {
      return one.low <= value->as_int() && value->as_int() <= one.high;
    });
    if (first != list.end()) turns = std::min(turns, first->turn);
  }
  while (turns > 0 && places[record.first_place + turns].seen_inside > replay_.same_count) --turns;
  return turns;
}

// The record of a loop at the top of the template, where nothing is held that it does not tell of.
const LoopRecord* Interpreter::record_of(const Stmt& node) const {
  if (!cyclers_.empty() || !changed_.empty()) return nullptr;
  for (const LoopRecord& one : records_) {
    if (template_.body[one.statement].get() == &node) return &one;
  }
  return nullptr;
}

// Whether everything that the loop reads and writes is as it was at one of its places.
bool Interpreter::is_as_before(const LoopRecord& record, const Place& place) const {
  const auto alike = [&](const Cell& cell) {
    return interchangeable(value_at(place, cell), cell_value(cell));
  };
  return std::all_of(record.reads.begin(), record.reads.end(),
                     [&](const auto& one) { return alike(one.cell); }) &&
         std::all_of(record.writes.begin(), record.writes.end(),
                     [&](const auto& one) { return alike(one.cell); }) &&
         std::all_of(record.bounds.begin(), record.bounds.end(),
                     [&](const auto& list) { return alike(list[0].cell); });
}

// Behind a message that is another now, passes over the turns that do not notice it.
void Interpreter::join(const Stmt& node, LoopState& state) {
  if (!replay_.places || replay_.joined || out_ != &text_ || !state.watched.is_watched()) return;
  const Watch& watch = state.watched.watch();
  const LoopRecord* record = watch.changed_at == Watch::kAll ? nullptr : record_of(node);
  if (!record || state.at >= record->place_count || record->lowest[state.at] <= watch.changed_at) {
    return;
  }
  const std::vector<Place>& places = *replay_.places;
  const Place& here = places[record->first_place + state.at];
  size_t turn = record->place_count - 1;
  while (turn > state.at && places[record->first_place + turn].seen_inside > watch.limit) --turn;
  if (turn == state.at || state.ended != here.ended || !state.watched.same(here.list) ||
      !namespace_owners() || !is_as_before(*record, here)) {
    return;
  }
  const Place& place = places[record->first_place + turn];
  restore(*record, place, turn);
  replay_.joined = text_.size();
  replay_.join_begin = here.text_bytes;
  replay_.join_end = place.text_bytes;
  state.at = turn;
  state.ended = place.ended;
}

// Writes what the first turns of a loop wrote to attributes.
void Interpreter::restore(const LoopRecord& record, const Place& place, size_t turns) {
  for (const auto& [cell, turn] : record.writes) {
    if (turn >= turns) continue;
    for (const auto& [one, attributes] : place.namespaces) {
      if (record.owner(*one) != cell.name) continue;
      const Value* holder = value_of(top_->values, cell.name);
      const Value* value = attributes.find(*cell.attribute);
      holder->as_namespace().attributes.set(Value::string(*cell.attribute), *value);
    }
  }
}

// Passes over turns of a loop that begins.
void Interpreter::pass_over(const Stmt& node, LoopState& state) {
  if (!replay_.places || out_ != &text_ || !state.watched.is_watched() || state.at != 0) return;
  const LoopRecord* record = record_of(node);
  if (!record || replay_.joined) return;
  const auto owners = namespace_owners();
  const Place& entry = (*replay_.places)[record->first_place];
  const std::string_view before = std::string_view(*replay_.text).substr(0, entry.text_bytes);
  if (!owners || !state.watched.same(entry.list) || replay_.passed_bytes > before.size() ||
      before.substr(replay_.passed_bytes) != text_) {
    return;
  }
  const size_t turns = turns_alike(*record);
  if (turns == 0) return;
  const Place& place = (*replay_.places)[record->first_place + turns];
  restore(*record, place, turns);
  text_.clear();
  replay_.passed_bytes = place.text_bytes;
  state.at = turns;
  state.ended = place.ended;
}

}  // namespace jige::text::jinja
