// Scopes, statements and output of the interpreter; expressions are in jinja_evaluate.cc.
#include "text/jinja_interpreter.h"

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_depth.h"
#include "text/jinja_format.h"

namespace jige::text::jinja {
namespace {

constexpr size_t kOutputBytesMax = size_t{64} << 20;

}  // namespace

// Sends output to a string of its own for as long as it lives.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& run) : run_(run), before_(run.out_) { run_.out_ = &text_; }
  ~Capture() { run_.out_ = before_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string take() { return std::move(text_); }

 private:
  Interpreter& run_;
  std::string* before_;
  std::string text_;
};

Interpreter::Interpreter(const Template& source, int64_t now_s, const Budget& budget)
    : template_(source), now_s_(now_s), budget_(budget), names_(source.names) {
  loop_name_ = name_id("loop");
  caller_name_ = name_id("caller");
  varargs_name_ = name_id("varargs");
  kwargs_name_ = name_id("kwargs");
  given_ = &open_scope(nullptr);
  top_ = &open_scope(given_);
  out_ = &text_;
}

uint32_t Interpreter::name_id(std::string_view name) {
  const auto it = std::find(names_.begin(), names_.end(), name);
  if (it != names_.end()) return static_cast<uint32_t>(it - names_.begin());
  names_.emplace_back(name);
  return static_cast<uint32_t>(names_.size() - 1);
}

void Interpreter::define(std::string_view name, Value value) {
  set(*given_, name_id(name), std::move(value));
}

Scope& Interpreter::open_scope(Scope* parent) {
  if (free_scopes_.empty()) {
    scopes_.push_back({parent, {}, false});
    return scopes_.back();
  }
  Scope& scope = *free_scopes_.back();
  free_scopes_.pop_back();
  scope.parent = parent;
  return scope;
}

void Interpreter::close_scope(Scope& scope) {
  if (scope.captured) return;
  scope.values.clear();
  free_scopes_.push_back(&scope);
}

void Interpreter::set(Scope& scope, uint32_t name, Value value) {
  for (auto& [known, slot] : scope.values) {
    if (known == name) {
      slot = std::move(value);
      return;
    }
  }
  scope.values.emplace_back(name, std::move(value));
}

tl::unexpected<Error> Interpreter::at_line(Error error, uint32_t line) const {
  if (!error.message.starts_with(template_.where + ": line ")) {
    error.message = fmt::format("{}: line {}: {}", template_.where, line, error.message);
  }
  return tl::unexpected<Error>(std::move(error));
}

Result<Namespace*> Interpreter::make_namespace() {
  JIGE_DO(budget_.bytes(sizeof(Namespace)));
  return &namespaces_.emplace_back();
}

Result<Cycler*> Interpreter::make_cycler(Cycler made) {
  JIGE_DO(budget_.bytes(sizeof(Cycler) + made.items.size() * sizeof(Value)));
  return &cyclers_.emplace_back(std::move(made));
}

Result<bool> Interpreter::loop_changed(const LoopState& loop, Value values) {
  const auto [known, is_first] = changed_.try_emplace(&loop);
  bool same = false;
  if (!is_first) {
    JIGE_TRY(same, equals(known->second, values, budget_));
  }
  known->second = std::move(values);
  return !same;
}

Result<ChatRender> Interpreter::run(std::vector<Place>* places) {
  places_ = places;
  if (places) places->push_back({});
  JIGE_TRY([[maybe_unused]] const Flow flow, run_body(template_.body, *top_));
  places_ = nullptr;
  return ChatRender{std::move(text_), std::move(generated_), budget_.steps_used()};
}

Status Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > kOutputBytesMax) {
    return fail(Code::kExhausted, "the template writes more than {} bytes", kOutputBytesMax);
  }
  JIGE_DO(budget_.bytes(text.size()));
  out_->append(text);
  return {};
}

Result<Interpreter::Flow> Interpreter::run_body(const Body& body, Scope& scope, size_t first) {
  const DepthGuard depth(depth_);
  JIGE_DO(depth.check());
  for (size_t i = first; i < body.size(); ++i) {
    JIGE_DO(budget_.steps(1));
    auto flow = run_statement(*body[i], scope);
    if (!flow) return at_line(std::move(flow.error()), body[i]->line);
    if (*flow != Flow::kNext) return *flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_statement(const Stmt& node, Scope& scope) {
  switch (node.kind) {
    case StmtKind::kText:
      JIGE_DO(write(node.text));
      break;
    case StmtKind::kOutput:
      JIGE_DO(run_output(node, scope));
      break;
    case StmtKind::kIf:
      return run_if(node, scope);
    case StmtKind::kFor:
      return run_for(node, scope);
    case StmtKind::kSet:
    case StmtKind::kSetBlock:
      JIGE_DO(run_set(node, scope));
      break;
    case StmtKind::kMacro:
      JIGE_DO(run_macro(node, scope));
      break;
    case StmtKind::kCallBlock:
      JIGE_DO(run_call_block(node, scope));
      break;
    case StmtKind::kFilterBlock: {
      JIGE_TRY(const Value text, captured_text(node.body, node.value.get(), scope));
      JIGE_TRY(const std::string shown, to_text(text, budget_));
      JIGE_DO(write(shown));
      break;
    }
    case StmtKind::kWith:
      return run_with(node, scope);
    case StmtKind::kGeneration:
      return run_generation(node, scope);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Status Interpreter::run_output(const Stmt& node, Scope& scope) {
  JIGE_TRY(const Value value, evaluate(*node.value, scope));
  if (value.is(Kind::kString)) return write(value.text());
  JIGE_TRY(const std::string text, to_text(value, budget_));
  return write(text);
}

Result<Interpreter::Flow> Interpreter::run_if(const Stmt& node, Scope& scope) {
  for (const auto& [condition, body] : node.branches) {
    if (condition) {
      JIGE_TRY(const Value value, evaluate(*condition, scope));
      if (!value.truth()) continue;
    }
    return run_body(body, scope);
  }
  return Flow::kNext;
}

// The items of a value to go through, after the loop's own condition.
Status Interpreter::open_loop(const Stmt& node, const Value& value, Scope& scope,
                              LoopState& state) {
  if (value.is_watched() && !node.condition) {
    state.watched = value;
    state.height = value.height();
    return {};
  }
  JIGE_TRY(state.items, iterate(value, budget_));
  if (node.condition) {
    JIGE_TRY(state.items, chosen_items(node, std::move(state.items), scope));
  }
  for (const Value& item : state.items) state.height = std::max(state.height, item.height() + 1);
  return {};
}

Result<Items> Interpreter::chosen_items(const Stmt& node, Items items, Scope& scope) {
  Items chosen;
  for (Value& item : items) {
    Scope& inner = open_scope(&scope);
    JIGE_DO(assign(node.target, item, inner));
    JIGE_TRY(const Value wanted, evaluate(*node.condition, inner));
    close_scope(inner);
    if (wanted.truth()) chosen.push_back(std::move(item));
  }
  return chosen;
}

Result<Interpreter::Flow> Interpreter::run_for(const Stmt& node, Scope& scope) {
  JIGE_TRY(const Value value, evaluate(*node.value, scope));
  if (node.is_recursive) {
    JIGE_DO(keep(scope));
    JIGE_DO(budget_.bytes(sizeof(RecursiveLoop)));
    JIGE_TRY(const Value text,
             loop_text(recursive_loops_.emplace_back(&node, &scope), value, /*depth=*/0));
    JIGE_DO(write(text.text()));
    return Flow::kNext;
  }
  const auto state = std::make_shared<LoopState>();
  JIGE_DO(open_loop(node, value, scope, *state));
  return run_turns(node, scope, state);
}

Result<Value> Interpreter::loop_text(const RecursiveLoop& loop, const Value& value, int64_t depth) {
  const DepthGuard guard(depth_);
  JIGE_DO(guard.check());
  const auto state = std::make_shared<LoopState>();
  state->recursive = &loop;
  state->depth = depth;
  JIGE_DO(open_loop(*loop.node, value, *loop.scope, *state));
  Capture capture(*this);
  JIGE_TRY([[maybe_unused]] const Flow flow, run_turns(*loop.node, *loop.scope, state));
  return Value::string(capture.take());
}

// {% else %} stands for a loop none of whose turns came to its end: also where all were left by
// {% continue %}, or the first by {% break %}, as in Jinja.
Result<Interpreter::Flow> Interpreter::run_turns(const Stmt& node, Scope& scope,
                                                 const std::shared_ptr<LoopState>& state) {
  const std::optional<size_t> noted = noted_loop(node, *state);
  if (noted) {
    seen_before_ = std::exchange(state->watched.watch().seen, 0);
    note_place(*noted, state);
    open_record(*noted);
  }
  pass_over(node, *state);
  while (state->has(state->at)) {
    JIGE_DO(budget_.steps(1));
    Scope& inner = open_scope(&scope);
    set(inner, loop_name_, Value::loop(state));
    JIGE_DO(assign(node.target, state->item(state->at), inner));
    JIGE_TRY(const Flow flow, run_body(node.body, inner));
    close_scope(inner);
    if (flow == Flow::kBreak) break;
    state->ended = state->ended || flow == Flow::kNext;
    ++state->at;
    if (noted) {
      note_place(*noted, state);
      extend_record();
    }
    join(node, *state);
    // A loop that somebody kept shows how far it went.
    if (!noted && state.use_count() == 1) {
      JIGE_TRY(const bool idle, is_idle(node, scope));
      state->ended = state->ended || (idle && state->has(state->at));
      if (idle) break;
    }
  }
  if (noted) close_record(*state);
  changed_.erase(state.get());
  if (state->ended) return Flow::kNext;
  Scope& inner = open_scope(&scope);
  JIGE_TRY(const Flow flow, run_body(node.else_body, inner));
  close_scope(inner);
  return flow;
}

Status Interpreter::assign(const Target& target, Value value, Scope& scope) {
  if (!target.attribute.empty()) {
    for (const Scope* at = &scope; at; at = at->parent) {
      for (const auto& [name, known] : at->values) {
        if (name != target.names[0]) continue;
        if (at == top_) note_name_read(name);
        if (!known.is(Kind::kNamespace)) {
          return fail(Code::kInvalidArgument,
                      "only attributes of a namespace can be set, not of {}", known.type_name());
        }
        note_attribute_write(known.as_namespace(), target.attribute, value);
        known.as_namespace().attributes.set(Value::string(target.attribute), std::move(value));
        return {};
      }
    }
    return fail(Code::kInvalidArgument, "'{}' is undefined", names_[target.names[0]]);
  }
  if (!target.unpacks) {
    set(scope, target.names[0], std::move(value));
    return {};
  }
  JIGE_TRY(const Items items, iterate(value, budget_));
  const size_t count = target.parts.empty() ? target.names.size() : target.parts.size();
  if (items.size() != count) {
    return fail(Code::kInvalidArgument, "cannot unpack {} values into {} names", items.size(),
                count);
  }
  for (size_t i = 0; i < count; ++i) {
    if (target.parts.empty()) {
      set(scope, target.names[i], items[i]);
    } else {
      JIGE_DO(assign(target.parts[i], items[i], scope));
    }
  }
  return {};
}

Result<Value> Interpreter::captured_text(const Body& body, const Expr* filters, Scope& scope) {
  Scope& inner = open_scope(&scope);
  Capture capture(*this);
  JIGE_TRY([[maybe_unused]] const Flow flow, run_body(body, inner));
  close_scope(inner);
  const Value text = Value::string(capture.take());
  return filters ? filter(*filters, &text, scope) : text;
}

Status Interpreter::run_set(const Stmt& node, Scope& scope) {
  if (node.kind == StmtKind::kSet) {
    JIGE_TRY(Value value, evaluate(*node.value, scope));
    return assign(node.target, std::move(value), scope);
  }
  JIGE_TRY(Value text, captured_text(node.body, node.value.get(), scope));
  return assign(node.target, std::move(text), scope);
}

Status Interpreter::keep(Scope& scope) {
  inner_macros_ |= &scope != top_;
  size_t kept = 0;
  for (Scope* at = &scope; at && !at->captured; at = at->parent) {
    at->captured = true;
    kept += sizeof(Scope) + at->values.size() * sizeof(at->values[0]);
  }
  return budget_.bytes(kept);
}

Result<Value> Interpreter::make_macro(const Stmt& node, std::string name, Scope& scope) {
  JIGE_DO(keep(scope));
  JIGE_DO(budget_.bytes(sizeof(MacroInstance)));
  macros_.push_back({&node, &scope, std::move(name)});
  return Value::macro(&macros_.back());
}

Status Interpreter::run_macro(const Stmt& node, Scope& scope) {
  JIGE_TRY(Value macro, make_macro(node, names_[node.name], scope));
  set(scope, node.name, std::move(macro));
  return {};
}

Status Interpreter::run_call_block(const Stmt& node, Scope& scope) {
  Scope& inner = open_scope(&scope);
  JIGE_TRY(const Value caller, make_macro(node, "caller", inner));
  JIGE_TRY(const Value text, call(*node.value, &caller, scope));
  JIGE_TRY(const std::string shown, to_text(text, budget_));
  return write(shown);
}

Result<Interpreter::Flow> Interpreter::run_with(const Stmt& node, Scope& scope) {
  Scope& inner = open_scope(&scope);
  for (const auto& [name, expression] : node.assignments) {
    JIGE_TRY(Value value, evaluate(*expression, scope));
    set(inner, name, std::move(value));
  }
  JIGE_TRY(const Flow flow, run_body(node.body, inner));
  close_scope(inner);
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_generation(const Stmt& node, Scope& scope) {
  const size_t begin = out_->size();
  Scope& inner = open_scope(&scope);
  JIGE_TRY(const Flow flow, run_body(node.body, inner));
  close_scope(inner);
  // Inside a captured text places have no meaning yet.
  if (out_ == &text_) generated_.push_back({begin, text_.size()});
  return flow;
}

}  // namespace jige::text::jinja
