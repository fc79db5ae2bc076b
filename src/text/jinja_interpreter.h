// Runs a parsed template over values.
//
// Scopes: the top of the template, each turn of a loop, each macro call and each {% with %}, {% set
// %} block and {% filter %} block has its own names; {% if %} has not. A scope whose macro or
// recursive loop might be called later lives until the end of the run. Which names may mean what
// was given to the template is found before (jinja_names.h).
//
// Places: a run over a watched list of messages (Watch) can note where every turn of a loop over it
// begins, with all that the rest of the run depends on. From such a place the run can go on again,
// as one over a list that ends sooner or has another message, if what the list then shows
// otherwise was not looked at before. Only loops that stand in no other block are noted. What such
// a run comes to behind its place, loops again, it passes over where it can (jinja_replay.h).
//
// Bounds: Budget (steps, bytes), depth of nested evaluation, size of the output.
// Threads: one thread per Interpreter; the Template may be shared.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/jinja_arguments.h"
#include "text/jinja_ast.h"
#include "text/jinja_replay.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<uint32_t, Value>> values;
  // A macro or a recursive loop points here, so the scope must outlive its block.
  bool captured = false;
};

struct MacroInstance {
  const Stmt* node;
  Scope* scope;
  std::string name;
};

// {% for … recursive %} as it stands in a scope.
struct RecursiveLoop {
  const Stmt* node;
  Scope* scope;
};

// Where a turn of a loop over a watched list begins, or the template.
struct Place {
  size_t statement = 0;  // the loop, in the body of the template
  size_t turn = 0;
  bool ended = false;                                       // LoopState::ended
  size_t seen = 0;                                          // Watch::seen of the time
  size_t seen_inside = 0;                                   // by turns of this loop alone
  size_t lowest = 0;                                        // Watch::lowest of the turn before
  size_t text_bytes = 0;                                    // that were written
  Value list;                                               // of the loop
  std::vector<std::pair<uint32_t, Value>> values;           // at the top of the template
  std::vector<std::pair<Namespace*, DictData>> namespaces;  // that can be reached
};

class Interpreter {
 public:
  Interpreter(const Template& source, int64_t now_s, const Budget& budget = {});

  // Gives the template a variable.
  void define(std::string_view name, Value value);
  // Runs the template once. Notes `places`, unless it is null, in the order of the run.
  Result<ChatRender> run(std::vector<Place>* places = nullptr);
  // Runs it again from a place that run() noted. The budget is that of this object.
  // REQUIRES: run() ended without an error; `whole` is what it noted and wrote, and the first
  // `same_count` messages are those of that run, which are all that were seen before the place.
  struct Whole {
    const std::vector<Place>& places;
    const std::string& text;
    size_t same_count = 0;
  };
  // Its text: that of the whole run up to `shared_bytes`, `middle`, the last `tail_bytes` of it.
  struct Again {
    size_t shared_bytes = 0;
    std::string middle = {};
    size_t tail_bytes = 0;
    int64_t steps = 0;
  };
  Result<Again> run_from(const Place& place, const Whole& whole);

  Budget& budget() { return budget_; }
  int64_t now_s() const { return now_s_; }

  // For filters such as map and select: applies another filter or test by name.
  Result<Value> apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments);
  // value.name and value[index] as templates see them; undefined where there is no such thing.
  Result<Value> member(const Value& value, std::string_view name);
  Result<Value> index(const Value& value, const Value& key);
  // loop.changed(values): whether they differ from those of the call before.
  Result<bool> loop_changed(const LoopState& loop, Value values);
  // A new namespace, alive until the end of the run.
  Result<Namespace*> make_namespace();
  // A cycler or joiner with the same life.
  Result<Cycler*> make_cycler(Cycler made);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Capture;

  // Statements.
  Result<Flow> run_body(const Body& body, Scope& scope, size_t first = 0);
  Result<Flow> run_statement(const Stmt& node, Scope& scope);
  Result<Flow> run_if(const Stmt& node, Scope& scope);
  Result<Flow> run_for(const Stmt& node, Scope& scope);
  Status open_loop(const Stmt& node, const Value& value, Scope& scope, LoopState& state);
  // What a recursive loop writes as it goes through a value.
  Result<Value> loop_text(const RecursiveLoop& loop, const Value& value, int64_t depth);
  Result<Value> call_loop(const LoopState& loop, const Arguments& arguments);
  Result<Flow> run_turns(const Stmt& node, Scope& scope, const std::shared_ptr<LoopState>& state);
  Result<Items> chosen_items(const Stmt& node, Items items, Scope& scope);
  // The number of a loop whose turns are noted in the body of the template.
  std::optional<size_t> noted_loop(const Stmt& node, const LoopState& state) const;
  void note_place(size_t statement, const std::shared_ptr<LoopState>& state);
  std::vector<Namespace*> reachable_namespaces();
  // Of records (jinja_replay.cc).
  std::optional<std::vector<std::pair<Namespace*, uint32_t>>> namespace_owners() const;
  void open_record(size_t statement);
  void extend_record();
  void close_record(LoopState& state);
  void note_name_read(uint32_t name);
  void note_attribute_read(const Namespace& one, std::string_view name);
  void note_attribute_write(const Namespace& one, std::string_view name, const Value& value);
  Result<Value> compared_part(const Expr& part, Scope& scope, std::optional<Cell>& cell);
  void note_compared(const std::optional<Cell>& left_cell, const Value& left, std::string_view op,
                     const std::optional<Cell>& right_cell, const Value& right, bool holds);
  const Value* cell_value(const Cell& cell) const;
  size_t turns_alike(const LoopRecord& record) const;
  void pass_over(const Stmt& node, LoopState& state);
  const LoopRecord* record_of(const Stmt& node) const;
  void join(const Stmt& node, LoopState& state);
  void restore(const LoopRecord& record, const Place& place, size_t turns);
  bool is_as_before(const LoopRecord& record, const Place& place) const;
  // Whether turns of a loop do nothing from here on (jinja_idle.cc).
  Result<bool> is_idle(const Stmt& loop, Scope& scope);
  Result<bool> is_always_false(const Expr& node, const std::vector<uint32_t>& own, Scope& scope);
  Result<bool> is_plain_number(const Expr& node, const std::vector<uint32_t>& own, Scope& scope);
  bool is_outer(const Expr& node, const std::vector<uint32_t>& own) const;
  Status run_set(const Stmt& node, Scope& scope);
  Status run_macro(const Stmt& node, Scope& scope);
  Status run_call_block(const Stmt& node, Scope& scope);
  Result<Flow> run_with(const Stmt& node, Scope& scope);
  Result<Flow> run_generation(const Stmt& node, Scope& scope);
  Status run_output(const Stmt& node, Scope& scope);
  // The text that a body writes, through a chain of filters (or null).
  Result<Value> captured_text(const Body& body, const Expr* filters, Scope& scope);
  Status assign(const Target& target, Value value, Scope& scope);
  Status write(std::string_view text);

  // Expressions.
  Result<Value> evaluate(const Expr& node, Scope& scope);
  Result<Value> evaluate_kind(const Expr& node, Scope& scope);
  Result<Value> lookup(const Expr& node, const Scope& scope);
  Result<Value> sequence(const Expr& node, Scope& scope);
  Result<Value> dict(const Expr& node, Scope& scope);
  Result<Value> slice(const Expr& node, Scope& scope);
  Result<Value> compare(const Expr& node, Scope& scope);
  Result<Value> concat(const Expr& node, Scope& scope);
  Result<Value> filter(const Expr& node, const Value* block_text, Scope& scope);
  Result<Value> call(const Expr& node, const Value* caller, Scope& scope);
  Result<Value> call_value(const Value& callee, const Arguments& arguments, const Value* caller);
  Result<Value> call_macro(const MacroInstance& macro, const Arguments& arguments,
                           const Value* caller);
  Status bind_parameters(const MacroInstance& macro, const Arguments& arguments, Scope& scope);
  Status bind_extras(const MacroInstance& macro, const Arguments& arguments, Scope& scope);
  Result<Arguments> arguments(const std::vector<Argument>& list, Scope& scope);
  Result<Value> make_macro(const Stmt& node, std::string name, Scope& scope);
  // Lets a scope and those around it live until the end of the run.
  Status keep(Scope& scope);

  Scope& open_scope(Scope* parent);
  void close_scope(Scope& scope);
  void set(Scope& scope, uint32_t name, Value value);
  uint32_t name_id(std::string_view name);
  // Adds the line to an error that has none yet.
  tl::unexpected<Error> at_line(Error error, uint32_t line) const;

  const Template& template_;
  int64_t now_s_;
  Budget budget_;
  std::vector<std::string> names_;
  uint32_t loop_name_, caller_name_, varargs_name_, kwargs_name_;
  std::deque<MacroInstance> macros_;
  std::deque<RecursiveLoop> recursive_loops_;
  std::deque<Namespace> namespaces_;
  std::deque<Cycler> cyclers_;
  // Kept here and not in the loops, so that a loop cannot own itself.
  std::unordered_map<const LoopState*, Value> changed_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* given_;  // what define() sets, around top_
  Scope* top_;
  std::string* out_ = nullptr;
  std::string text_;
  std::vector<ChatSpan> generated_;
  uint32_t depth_ = 0;
  std::vector<Place>* places_ = nullptr;
  size_t seen_before_ = 0;  // by what stands before the loop whose places are noted
  std::deque<LoopRecord> records_;
  LoopRecord* record_ = nullptr;         // of the loop that runs
  std::optional<Cell>* held_ = nullptr;  // takes a read in place of the record
  struct {
    const std::vector<Place>* places = nullptr;
    const std::string* text = nullptr;
    size_t same_count = 0;
    size_t passed_bytes = 0;  // of the text, which text_ goes on from
    // What stands in it at [join_begin, join_end) also stands in text_ at `joined`, unwritten.
    std::optional<size_t> joined = {};
    size_t join_begin = 0;
    size_t join_end = 0;
  } replay_;
  bool inner_macros_ = false;  // and recursive loops, of which some may hold namespaces
};

}  // namespace jige::text::jinja
