// Draws tokens from rows of logits, as ops/draw.h says. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace jige::cuda {

// A token of a prompt or an answer, which its logit is penalised for.
struct SeenToken {
  int32_t token;
  int32_t generated_count;  // how often the answer has it
};

// How the token of a row is found.
struct DrawRow {
  enum Kind : int32_t {
    kHost,       // it is not: the host wants the logits
    kLikeliest,  // the first of the largest
    kSample,     // drawn, with what follows
  };
  int32_t kind = kHost;
  int32_t is_scored = 0;  // Score is wanted, of logits that were not penalised
  int32_t top_k = 0;      // 0: off
  float factor = 1;       // of a logit less the largest
  float min_weight = 0;   // least exponential, where the largest is 1
  double top_p = 1;       // 1: off
  double uniform = 0;     // in [0, 1)
  // Penalties of ops/sampling.h for tokens that occur, each once.
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  const SeenToken* seen = nullptr;  // where the struct is: on the host, or uploaded
  int32_t seen_count = 0;
};

// Changes the logits of tokens that were seen, in place. `draws` are uploaded, one for each row.
struct Penalise {
  float* logits;
  int64_t stride;
  int64_t rows;
  int64_t columns;
  const DrawRow* draws;
};
void penalise(const LaunchStream& stream, const Penalise& args);

// What the log-probability of a row's token is made of: its logit, the largest, and the sum of the
// exponentials of all less the largest.
struct Score {
  double total;
  float largest, logit;
};

struct Draw {
  Score* scores;    // [rows], of those that are scored
  int32_t* tokens;  // [rows]: the likeliest, or -1; those of rows that sample are drawn
  const float* logits;
  int64_t stride;
  int64_t rows;
  int64_t columns;       // at most cpu::kDrawColumnsMax
  const DrawRow* draws;  // [rows], uploaded
  void* scratch;         // draw_bytes(), aligned to 16
  void* zeros;           // draw_zeros_bytes(), zeros before and after, aligned to 16
};
int64_t draw_bytes(int64_t rows, int64_t columns);
int64_t draw_zeros_bytes(int64_t rows);
void draw(const LaunchStream& stream, const Draw& args);

}  // namespace jige::cuda
