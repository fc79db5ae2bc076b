// RowGate: which rows of weights a step computes gradients of, where rows that hardly move on are
// skipped now and then (an idea of convergence-aware training, doi:10.1109/DAC18072.2020.9218518;
// the rule is our own).
//
// Groups are neighbouring rows of a matrix of a linear layer; the last one of a matrix may have
// more than the others. Embeddings, the head, experts, norms and biases are none. Of each group
// eight coordinates are watched, the same through the run. Where an update changed one by Δ,
//   e = β e + (1-β) Δ    a = β a + (1-β) |Δ|    c = Σ |e| / Σ a
// so c is 1 where all moves in one direction, and small where what one step does another undoes.
// A step skips the group with probability
//   q = most · (1 - c / below), at least 0,
// decided by seed, step and group alone. Steps in which a group is skipped say nothing of it. All
// groups are computed in the first steps, every so many steps, and while the smoothed loss is above
// its lowest.
// What is skipped is not computed (Param::grad_rows). Its gradient is zero, also in the norm; then
// either nothing is updated there, or, with SkipMode::kScale, where the group is computed with q >
// 0 its gradient is multiplied by 1 / (1 - q).
//
// Invariant: all of it is a function of seed, step and state(), which a checkpoint keeps; so are
// the bits, for any number of threads, and in f32 any split into micro-batches.
// Of weights in memory that the host reads. Threads: one at a time; state() may be read from
// another one but in end_step().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights.h"
#include "train/options.h"

namespace jige::train {

// What a step computed of the weight gradients that may be skipped.
struct RowGateUse {
  double share = 1;             // of their work
  double skipped_elements = 0;  // of weights
};

class RowGate {
 public:
  // The weights must outlive the gate.
  RowGate(const RowGateOptions& options, uint64_t seed, model::ModelWeights& weights);
  ~RowGate();
  RowGate(const RowGate&) = delete;
  RowGate& operator=(const RowGate&) = delete;

  // Decides what step `step`, from 1, computes, and tells the weights. REQUIRES: nothing runs on
  // the weights.
  void start_step(int64_t step);
  // Once gradients are whole: makes them larger where the mode says so.
  void scale_gradients(Stream& stream);
  // The rows that are updated of each trained parameter; null: all.
  const std::vector<const std::vector<ops::RowRange>*>& updated_rows() const { return updated_; }
  // Takes what the update did, and the step's mean loss. REQUIRES: nothing runs on the weights.
  void end_step(double loss, bool applied);
  const RowGateUse& use() const { return use_; }

  // What the next steps depend on, f32: "loss" [2], and for each matrix by its name e and a of its
  // groups [groups, 16].
  struct State {
    std::string name;
    TensorView view;
  };
  std::vector<State> state();
  // Whether it can be one. Fails with kCorrupt naming `where`.
  Status check_state(const std::string& where) const;
  // Of memory that a group takes.
  static int64_t group_bytes();

 private:
  static constexpr int64_t kWatched = 8;  // coordinates of a group

  struct Group {
    ops::RowRange rows;
    int64_t watched[kWatched] = {};  // elements of the matrix
    float before[kWatched] = {};     // their values as the step began
    double skip = 0;                 // q of this step
    bool computed = true;
  };
  struct Matrix {
    size_t param = 0;  // among the trained ones
    std::vector<Group> groups;
    std::vector<float> drift;             // e and a, [groups, 16]
    std::vector<ops::RowRange> computed;  // of this step
  };

  void add_matrix(size_t param, uint64_t seed);
  // q of a group by what is known of it.
  double skip_probability(const Matrix& matrix, size_t group) const;
  bool skips_nothing(int64_t step) const;
  float value_of(const Matrix& matrix, int64_t element) const;
  const model::NamedParam& param_of(const Matrix& matrix) const;

  RowGateOptions options_;
  uint64_t seed_;
  model::ModelWeights* weights_;
  std::vector<Matrix> matrices_;
  std::vector<const std::vector<ops::RowRange>*> updated_;
  float loss_[2] = {-1, -1};  // smoothed, and its lowest; below 0: none yet
  RowGateUse use_;
};

// Whether W of a parameter may be skipped by rows: those of linear layers between the embedding and
// the head.
bool may_skip_rows(const model::Architecture& architecture, const model::NamedParam& param);

// That a model has any, where a run skips some. Fails with kUnsupported.
Status check_row_gate(const model::Architecture& architecture, const model::WeightsOptions& weights,
                      const TrainOptions& options);
// The part of a step's products, of sequences of so many tokens, that is skipped where all of them
// are as often as they may be.
double skipped_share(const model::Architecture& architecture, const model::WeightsOptions& weights,
                     const TrainOptions& options);
// Bytes of a gate, and of the scratch that its products take of each of so many threads.
struct RowGateMemory {
  int64_t own_bytes = 0;
  int64_t thread_scratch_bytes = 0;
};
RowGateMemory row_gate_memory(const model::Architecture& architecture,
                              const model::WeightsOptions& weights, const TrainOptions& options,
                              int threads);

// The rows of its groups, in order.
std::vector<ops::RowRange> row_groups(int64_t row_count, int64_t group_rows);

}  // namespace jige::train
