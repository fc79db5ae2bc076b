// The filters, tests, methods and global functions of the template language, by name.
//
// Threads: pure functions but for what they do to their Interpreter.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja_arguments.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// What a filter gets: value|name(arguments).
struct FilterCall {
  Interpreter& run;
  const Value& input;
  const Arguments& arguments;
  std::string_view name;

  Budget& budget() const { return run.budget(); }
};
using Filter = Result<Value> (*)(const FilterCall& call);

// The function of a filter, or nullptr. The second looks in jinja_filters_list.cc, which the first
// does itself.
Filter find_filter(std::string_view name);
Filter find_list_filter(std::string_view name);

// `value is name(arguments)`. Fails with kUnsupported on an unknown name.
Result<bool> run_test(Interpreter& run, std::string_view name, const Value& value,
                      const Arguments& arguments);

// Whether values of this kind have a method of this name, other than by being called.
bool has_method(const Value& value, std::string_view name);
// value.name(arguments). REQUIRES: has_method.
Result<Value> call_method(Interpreter& run, const Value& value, std::string_view name,
                          const Arguments& arguments);

// loop.name, for what is no method: index, first, previtem and so on.
Value loop_attribute(const Value& loop, std::string_view name);

// cycler.current, or nullptr for what is none of its attributes.
const Value* cycler_attribute(const Cycler& cycler, std::string_view name);
// What a joiner gives when it is called: nothing at first, its separator from then on.
Result<Value> call_joiner(Cycler& joiner, const Arguments& arguments);

// Whether there is a global function of this name.
bool has_function(std::string_view name);
// name(arguments). REQUIRES: has_function.
Result<Value> call_function(Interpreter& run, std::string_view name, const Arguments& arguments);

// Follows "a.b.0" from a value, as the attribute arguments of filters do. A step that leads nowhere
// gives `fallback`, where there is one.
Result<Value> follow(Interpreter& run, const Value& value, std::string_view path,
                     const Value* fallback = nullptr);

}  // namespace jige::text::jinja
