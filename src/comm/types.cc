#include "comm/types.h"

#include <array>

namespace jige::comm {
namespace {

constexpr std::array<std::string_view, kCollectiveCount> kCollectives = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "barrier"};
constexpr std::array<std::string_view, kRedOpCount> kRedOps = {"sum", "min", "max", "avg"};

}  // namespace

std::string_view collective_name(Collective collective) {
  return kCollectives[static_cast<size_t>(collective)];
}

std::string_view redop_name(RedOp op) { return kRedOps[static_cast<size_t>(op)]; }

Result<Collective> parse_collective(std::string_view name) {
  for (size_t i = 0; i < kCollectives.size(); ++i) {
    if (kCollectives[i] == name) return static_cast<Collective>(i);
  }
  return fail(Code::kInvalidArgument, "\"{}\" is not a collective: {}", name,
              fmt::join(kCollectives, ", "));
}

Result<RedOp> parse_redop(std::string_view name) {
  for (size_t i = 0; i < kRedOps.size(); ++i) {
    if (kRedOps[i] == name) return static_cast<RedOp>(i);
  }
  return fail(Code::kInvalidArgument, "\"{}\" is not a reduction: {}", name,
              fmt::join(kRedOps, ", "));
}

Status check_reducible(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kI32:
      return {};
    default:
      return fail(Code::kUnsupported, "{} cannot be reduced; f32, bf16, f16 and i32 can",
                  dtype_info(dtype).name);
  }
}

}  // namespace jige::comm
