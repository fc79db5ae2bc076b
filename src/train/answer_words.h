// Answers and what they are worth as words of 64 bits, in which ranks tell them to one another.
//
// An answer: the bits of its reward, the number of its tokens, 1 where it was cut, and for each
// token its id in the lower and the bits of its log-probability in the upper half of a word.
// Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "train/rollout.h"

namespace jige::train {

// The text stays behind.
void add_answer(const DrawnAnswer& answer, double reward, std::vector<int64_t>& words);

// Takes what a rank said, front to back. Fails with kCorrupt where that is no answer of a model
// with such a vocabulary.
class AnswerReader {
 public:
  AnswerReader(std::span<const int64_t> words, int64_t vocab_size)
      : words_(words), vocab_size_(vocab_size) {}

  Result<int64_t> take();
  Result<double> take_number();
  Status take_answer(DrawnAnswer& answer, double& reward);

 private:
  std::span<const int64_t> words_;
  int64_t vocab_size_;
};

}  // namespace jige::train
