// Matrix products as the benchmarks run them: ours, and oneDNN's where it was found.
//
// The three forms of a linear layer of `inputs` and `outputs` over `tokens`, with one weight or
// several copies, which a caller rotates through so that they are or are not in the caches.
// Threads: one call at a time, with all threads of the machine's device; oneDNN's are OpenMP's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"
#include "ops/linear.h"

namespace jige::bench {

// Returns when the threads of this process have stopped spinning, or after 0.6 s. OpenMP's go on
// after their last loop for a time that depends on the processor, 7 ms on a Zen 5, and would take
// the cores from whoever has the next turn.
void wait_until_quiet();

enum class Form { kForward, kInput, kWeight };
const char* form_name(Form form);

struct Product {
  DType type;  // of the operands; gradients of weights are f32
  Form form;
  int64_t tokens = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool accumulates = true;  // gradients of weights: added to what is there
  ops::WeightFormat format = ops::WeightFormat::kCompute;  // of the weight
  // Of a quantised weight: whether its numbers are multiplied, forward or for the input gradient.
  // Else forward, in whole numbers.
  bool numbers = false;
  bool even_levels = false;  // the weight's numbers: in q4 they are kept in even levels

  double flops() const;
};

class OurProduct {
 public:
  OurProduct(Machine& machine, const Product& product, int64_t copies);
  // REQUIRES: 0 <= copy < copies.
  void call(int64_t copy);
  // The same of the first rows only. REQUIRES: forward, 0 < rows <= tokens.
  void call_rows(int64_t copy, int64_t rows);
  // Of one copy of a packed weight; nothing for gradients of weights.
  int64_t packed_bytes() const { return packed_bytes_; }
  // Packs a copy again, as it was packed in the beginning.
  void pack(int64_t copy);

 private:
  Machine& machine_;
  Product product_;
  Tensor src_, dst_;  // tokens x inputs, tokens x outputs
  Tensor scratch_;    // of gradients of weights
  Tensor strip_;      // of products with the numbers of quantised weights
  std::vector<Tensor> memory_;
  Tensor weight_;  // what is packed
  int64_t packed_bytes_ = 0;
  std::vector<ops::PackedWeight> packed_;
};

// The same product as a matmul with a weight in the layout oneDNN asks for.
class PeerProduct {
 public:
  // None where oneDNN is not there or would use its reference implementation, which is no measure.
  static std::unique_ptr<PeerProduct> create(const Product& product, int64_t copies);
  virtual ~PeerProduct() = default;
  virtual void call(int64_t copy) = 0;
};

// How a weight is kept, as benchmarks name it. Random numbers are in uneven levels in q4.
struct WeightKind {
  const char* name;
  ops::WeightFormat format;
  bool even_levels = false;
};

// Name and version of the peer; empty without one.
std::string peer_name();
void set_peer_threads(int count);

}  // namespace jige::bench
