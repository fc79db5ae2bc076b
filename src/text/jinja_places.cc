// Places of the interpreter: where a run can go on again (jinja_interpreter.h).
#include <algorithm>

#include "text/jinja_interpreter.h"

namespace jige::text::jinja {
namespace {

// More names and namespaces than templates have; noting them would cost too much.
constexpr size_t kNotedMax = 256;

}  // namespace

std::optional<size_t> Interpreter::noted_loop(const Stmt& node, const LoopState& state) const {
  if (!places_ || !state.watched.is_watched() || out_ != &text_) return std::nullopt;
  const auto found = std::find_if(template_.body.begin(), template_.body.end(),
                                  [&](const auto& one) { return one.get() == &node; });
  if (found == template_.body.end()) return std::nullopt;
  return static_cast<size_t>(found - template_.body.begin());
}

// Those that a name or an attribute leads to; all where something else may hold one.
std::vector<Namespace*> Interpreter::reachable_namespaces() {
  std::vector<Namespace*> found;
  if (inner_macros_ || budget_.keeps_namespaces()) {
    for (Namespace& one : namespaces_) found.push_back(&one);
    return found;
  }
  const auto add = [&](const Value& value) {
    if (!value.is(Kind::kNamespace)) return;
    Namespace* one = &value.as_namespace();
    if (std::find(found.begin(), found.end(), one) == found.end()) found.push_back(one);
  };
  for (const auto& [name, value] : top_->values) add(value);
  for (size_t i = 0; i < found.size(); ++i) {
    for (const auto& [name, value] : found[i]->attributes.entries) add(value);
  }
  return found;
}

// What else could change behind the place's back, and is in few templates: cyclers, loop.changed,
// and a loop that somebody kept.
void Interpreter::note_place(size_t statement, const std::shared_ptr<LoopState>& state) {
  Watch& watch = state->watched.watch();
  if (watch.seen == Watch::kAll || !cyclers_.empty() || !changed_.empty() ||
      state.use_count() > 1) {
    return;
  }
  const std::vector<Namespace*> reachable = reachable_namespaces();
  if (top_->values.size() + reachable.size() > kNotedMax) return;
  Place place{.statement = statement,
              .turn = state->at,
              .ended = state->ended,
              .seen = std::max(watch.seen, seen_before_),
              .seen_inside = watch.seen,
              .lowest = std::exchange(watch.lowest, Watch::kAll),
              .text_bytes = text_.size(),
              .list = state->watched,
              .values = top_->values,
              .namespaces = {}};
  for (Namespace* one : reachable) place.namespaces.emplace_back(one, one->attributes);
  places_->push_back(std::move(place));
}

Result<Interpreter::Again> Interpreter::run_from(const Place& place, const Whole& whole) {
  text_.clear();
  generated_.clear();
  replay_ = {.places = &whole.places,
             .text = &whole.text,
             .same_count = whole.same_count,
             .passed_bytes = place.text_bytes};
  const int64_t steps = budget_.steps_used();
  top_->values = place.values;
  for (const auto& [one, attributes] : place.namespaces) one->attributes = attributes;
  Result<Flow> flow = Flow::kNext;
  size_t next = 0;
  if (place.list.is_watched()) {
    const auto state = std::make_shared<LoopState>();
    state->watched = place.list;
    state->at = place.turn;
    state->ended = place.ended;
    state->height = place.list.height();
    const Stmt& loop = *template_.body[place.statement];
    flow = run_turns(loop, *top_, state);
    if (!flow) return at_line(std::move(flow.error()), loop.line);
    next = place.statement + 1;
  }
  if (*flow == Flow::kNext) {
    JIGE_TRY(flow, run_body(template_.body, *top_, next));
  }
  Again again{.shared_bytes = replay_.passed_bytes,
              .middle = std::move(text_),
              .steps = budget_.steps_used() - steps};
  if (!replay_.joined) return again;
  const std::string_view behind = std::string_view(again.middle).substr(*replay_.joined);
  if (behind == std::string_view(whole.text).substr(replay_.join_end)) {
    again.tail_bytes = whole.text.size() - replay_.join_begin;
    again.middle.resize(*replay_.joined);
  } else {
    again.middle.insert(*replay_.joined, whole.text, replay_.join_begin,
                        replay_.join_end - replay_.join_begin);
  }
  return again;
}

}  // namespace jige::text::jinja
