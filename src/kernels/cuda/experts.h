// Choosing experts, bringing rows together by expert, and what is done to those rows: as
// kernels/cpu/experts.h says, whose argument structs these take.
//
// Choices, their weights and slopes have the bits of the CPU's; so have rows that are gathered,
// added up, weighed or get biases, and the gradients of biases and scales. Inner products of rows
// add in another order. Nothing here waits for the host. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/experts.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

inline constexpr int64_t kExpertsMax = 2048;

// The choice of T tokens, and a row for each of their R = T k places: by expert, then by token.
struct RouteArgs {
  cpu::ChooseArgs choice;
  int64_t tokens;
  int32_t* row_of_place;  // [T, k]
  int32_t* place_of_row;  // [R]
  int32_t* row_ends;      // [E]
  const float* scales;    // [E], or null
  float* scaled_weights;  // [T, k]: weights times the scales of their experts
};
// Bytes of scratch that route() has.
int64_t route_scratch_bytes(const RouteArgs& args);
// REQUIRES: at most kExpertsMax experts.
void route(const LaunchStream& stream, const RouteArgs& args, void* scratch);
void route_slopes(const LaunchStream& stream, const cpu::SlopesArgs& args, int64_t tokens);

// dst[row] = src[places[row] / chosen], of one type.
struct GatherArgs {
  cpu::Rows dst;
  cpu::ConstRows src;
  const int32_t* places;
  int64_t chosen;
  int64_t width;
};
void gather_rows(const LaunchStream& stream, const GatherArgs& args, int64_t rows);
// And, unless its data are null, [T, D] f32 on top of the sums.
void combine_rows(const LaunchStream& stream, const cpu::CombineArgs& args, int64_t tokens,
                  const cpu::ConstRows& addend);
void scale_rows(const LaunchStream& stream, const cpu::ScaleRowsArgs& args, int64_t rows);
void row_dots(const LaunchStream& stream, const cpu::RowDotsArgs& args, int64_t rows);
void gate_rows(const LaunchStream& stream, const cpu::RowGateArgs& args, int64_t rows);
void gate_rows_backward(const LaunchStream& stream, const cpu::RowGateArgs& args, int64_t rows);
void add_biases(const LaunchStream& stream, const cpu::ExpertBiasArgs& args, int64_t rows);
void bias_dots(const LaunchStream& stream, const cpu::ExpertBiasArgs& args, int64_t rows);
void bounded_gate(const LaunchStream& stream, const cpu::BoundedGateArgs& args, int64_t rows);
void bounded_gate_backward(const LaunchStream& stream, const cpu::BoundedGateArgs& args,
                           int64_t rows);

// grads[e] += the rows of expert e, ascending.
struct BiasGradientArgs {
  float* const* grads;  // [E] in device memory; a null one is not wanted
  cpu::ConstRows rows;
  const float* factors;  // by places, or null: ones
  const int32_t* places;
  const int32_t* row_ends;
  int64_t experts;
  int64_t width;
};
void bias_gradients(const LaunchStream& stream, const BiasGradientArgs& args);

// Of weights that came times scales, at every place: slopes = weights · grads, and grads *= scales.
struct ScaleSlopesArgs {
  float* grads;
  float* slopes;
  const float* weights;
  const float* scales;
  const int32_t* experts_of;
};
void scale_slopes(const LaunchStream& stream, const ScaleSlopesArgs& args, int64_t places);
// grads[e] += the slopes of the rows of expert e, ascending.
struct ScaleGradientArgs {
  float* grads;
  const float* slopes;
  const int32_t* places;
  const int32_t* row_ends;
  int64_t experts;
};
void scale_gradients(const LaunchStream& stream, const ScaleGradientArgs& args);

}  // namespace jige::cuda
