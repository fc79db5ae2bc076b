#include "text/jinja_names.h"

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace jige::text::jinja {
namespace {

// The names of one block with variables of its own, or of a branch in it.
class NameFrame {
 public:
  enum class Part { kBlock, kBranch };
  NameFrame(const NameFrame* parent, Part part) : parent_(parent), part_(part) {}

  void declare(uint32_t name) {
    stores_.insert(name);
    is_local_[name] = true;
  }
  void store(uint32_t name) {
    stores_.insert(name);
    const NameFrame* around = outer();
    if (find(name, around)) return;
    const bool* known = around ? around->find(name) : nullptr;
    is_local_[name] = known ? *known : true;
  }
  void load(uint32_t name) {
    if (!find(name)) is_local_[name] = false;
  }
  // Takes over what branches of this saw.
  void join(std::initializer_list<const NameFrame*> branches) {
    std::set<uint32_t> stored;
    for (const NameFrame* branch : branches) {
      stored.insert(branch->stores_.begin(), branch->stores_.end());
      for (const auto& [name, local] : branch->is_local_) is_local_.insert_or_assign(name, local);
    }
    const NameFrame* around = outer();
    for (const uint32_t name : stored) {
      if (stores(name)) continue;
      stores_.insert(name);
      const bool* known = around ? around->find(name) : nullptr;
      is_local_[name] = known && *known;
    }
  }

  // Whether the name is a variable of the template; nullptr where none of the frames from this one
  // up to `end` knows it.
  const bool* find(uint32_t name, const NameFrame* end = nullptr) const {
    for (const NameFrame* at = this; at != end; at = at->parent_) {
      const auto known = at->is_local_.find(name);
      if (known != at->is_local_.end()) return &known->second;
    }
    return nullptr;
  }

 private:
  // The block around that of this frame.
  const NameFrame* outer() const {
    const NameFrame* at = this;
    while (at->part_ == Part::kBranch) at = at->parent_;
    return at->parent_;
  }
  bool stores(uint32_t name) const {
    const NameFrame* end = outer();
    for (const NameFrame* at = this; at != end; at = at->parent_) {
      if (at->stores_.count(name) > 0) return true;
    }
    return false;
  }

  const NameFrame* parent_;
  Part part_;
  std::map<uint32_t, bool> is_local_;
  std::set<uint32_t> stores_;
};

using Part = NameFrame::Part;

class NameResolver {
 public:
  explicit NameResolver(Template& source) : source_(source) {
    for (uint32_t id = 0; id < source.names.size(); ++id) {
      const std::string& name = source.names[id];
      if (name == "loop") of_loops_.push_back(id);
      if (name == "caller" || name == "varargs" || name == "kwargs") of_macros_.push_back(id);
    }
  }

  void run() {
    NameFrame top(nullptr, Part::kBlock);
    see(source_.body, top);
    mark(source_.body, top);
  }

 private:
  // First all names that a frame loads and stores, in the order of the source; blocks with
  // variables of their own are other frames.
  void see(const Body& body, NameFrame& frame) {
    for (const auto& node : body) see(*node, frame);
  }

  void see(const Stmt& node, NameFrame& frame) {
    if (node.kind == StmtKind::kIf) return see_branches(node, frame);
    if (node.value) see(*node.value, frame);
    for (const auto& [name, value] : node.assignments) see(*value, frame);
    if (node.kind == StmtKind::kMacro) frame.store(node.name);
    if (node.kind != StmtKind::kSet && node.kind != StmtKind::kSetBlock) return;
    for (const uint32_t name : node.target.names) {
      if (node.target.attribute.empty()) {
        frame.store(name);
      } else {
        frame.load(name);
      }
    }
  }

  void see_branches(const Stmt& node, NameFrame& frame) {
    see(*node.branches[0].first, frame);
    NameFrame first(&frame, Part::kBranch);
    NameFrame others(&frame, Part::kBranch);  // elif
    NameFrame last(&frame, Part::kBranch);    // else
    see(node.branches[0].second, first);
    for (size_t i = 1; i < node.branches.size(); ++i) {
      const auto& [condition, body] = node.branches[i];
      if (!condition) {
        see(body, last);
        continue;
      }
      see(*condition, others);
      NameFrame branch(&others, Part::kBranch);
      see(body, branch);
      others.join({&branch});
    }
    frame.join({&first, &others, &last});
  }

  void see(const Expr& node, NameFrame& frame) {
    if (node.kind == ExprKind::kName) frame.load(node.name);
    for (const ExprPtr& part : node.parts) {
      if (part) see(*part, frame);
    }
    for (const Argument& argument : node.arguments) see(*argument.value, frame);
  }

  // Then what each name is, and the frames inside.
  void mark(const Body& body, const NameFrame& frame) {
    for (const auto& node : body) mark(*node, frame);
  }

  void mark(Stmt& node, const NameFrame& frame) {
    if (node.value) mark(*node.value, frame);
    for (const auto& [name, value] : node.assignments) mark(*value, frame);
    for (const auto& [condition, body] : node.branches) {
      if (condition) mark(*condition, frame);
      mark(body, frame);
    }
    NameFrame inner(&frame, Part::kBlock);
    declare_given(node, inner);
    if (node.condition) {
      NameFrame test = inner;
      see(*node.condition, test);
      mark(*node.condition, test);
    }
    NameFrame other(&frame, Part::kBlock);
    see(node.else_body, other);
    mark(node.else_body, other);
    for (const Parameter& parameter : node.parameters) {
      if (parameter.fallback) see(*parameter.fallback, inner);
    }
    see(node.body, inner);
    for (const Parameter& parameter : node.parameters) {
      if (parameter.fallback) mark(*parameter.fallback, inner);
    }
    mark(node.body, inner);
  }

  // The variables with which the block of a statement begins.
  void declare_given(const Stmt& node, NameFrame& frame) const {
    if (node.kind == StmtKind::kFor) {
      for (const uint32_t name : of_loops_) frame.declare(name);
      for (const uint32_t name : node.target.names) frame.declare(name);
    }
    if (node.kind == StmtKind::kMacro || node.kind == StmtKind::kCallBlock) {
      for (const uint32_t name : of_macros_) frame.declare(name);
    }
    for (const auto& [name, value] : node.assignments) frame.declare(name);
    for (const Parameter& parameter : node.parameters) frame.declare(parameter.name);
  }

  void mark(Expr& node, const NameFrame& frame) {
    if (node.kind == ExprKind::kName) {
      const bool* local = frame.find(node.name);
      node.is_local = local && *local;
    }
    for (const ExprPtr& part : node.parts) {
      if (part) mark(*part, frame);
    }
    for (const Argument& argument : node.arguments) mark(*argument.value, frame);
  }

  Template& source_;
  std::vector<uint32_t> of_loops_, of_macros_;  // names that these give: loop; caller and so on
};

}  // namespace

void resolve_names(Template& source) { NameResolver(source).run(); }

}  // namespace jige::text::jinja
