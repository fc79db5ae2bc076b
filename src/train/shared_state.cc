#include "train/shared_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "train/rank_exchange.h"

namespace jige::train {
namespace {

constexpr int64_t kStateBytesMax = 1 << 20;
constexpr int kMoments = 2;

// Of a message with a part of a moment: both sides know whose it is.
uint64_t moment_tag(size_t param, int moment) { return 2 * param + static_cast<uint64_t>(moment); }

const TensorView& moment_of(const Optimizer& optimizer, size_t param, int moment) {
  return moment == 0 ? optimizer.moment1(param) : optimizer.moment2(param);
}

std::span<std::byte> bytes_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data),
          static_cast<size_t>(dtype_bytes(view.dtype, view.count()))};
}

// Elements of a parameter whose moment is a row of its tensor.
int64_t row_elements(const ops::MomentLayout& layout) {
  if (layout.dtype != DType::kF32) return ops::moment_cut(layout.dtype);
  return std::max<int64_t>(layout.shape.row_count_elements(), 1);
}

// Elements whose moment is written at once; a function of the moment's layout alone.
int64_t piece_elements(const ops::MomentLayout& layout) {
  const int64_t row = row_elements(layout);
  return std::max<int64_t>(kSavedPieceBytes / ops::moment_bytes(layout.dtype, row), 1) * row;
}

// The part of a moment's bytes, which begin with those of the element `first`.
template <typename Byte>
std::span<Byte> part_of_moment(std::span<Byte> moment, DType dtype, const ElementRange& part,
                               int64_t first) {
  const int64_t begin = ops::moment_bytes(dtype, part.begin);
  return moment.subspan(static_cast<size_t>(begin - ops::moment_bytes(dtype, first)),
                        static_cast<size_t>(ops::moment_bytes(dtype, part.end()) - begin));
}

// Rank 0 has the whole moment in its checkpoint; the others get what they hold.
Status share_moment(comm::AsyncGroup& group, Optimizer& optimizer, size_t param, int moment,
                    const formats::CheckpointReader* checkpoint) {
  const uint64_t tag = moment_tag(param, moment);
  if (group.rank() != 0) {
    if (optimizer.held(param).count == 0) return {};
    return group.receive(0, bytes_of(moment_of(optimizer, param, moment)), tag).wait();
  }
  JIGE_CHECK(checkpoint, "moments are to be divided, and there is no checkpoint with them");
  const char* file = moment == 0 ? kCheckpointMoments1 : kCheckpointMoments2;
  JIGE_TRY(const TensorView whole, checkpoint->tensor(file, optimizer.params()[param].spec->name));
  std::vector<comm::Pending> sent;
  for (int rank = 1; rank < group.size(); ++rank) {
    const ElementRange part = optimizer.shares()->of_param(param, rank);
    if (part.count == 0) continue;
    sent.push_back(group.send(rank, part_of_moment(bytes_of(whole), whole.dtype, part, 0), tag));
  }
  for (const comm::Pending& message : sent) JIGE_DO(message.wait());
  return {};
}

// The elements [piece.begin, piece.end()) of a moment, from all who hold a part of them.
Status gather_piece(comm::AsyncGroup& group, const Optimizer& optimizer, size_t param, int moment,
                    const ElementRange& piece, std::span<std::byte> dst) {
  const TensorView& own = moment_of(optimizer, param, moment);
  const DType dtype = optimizer.moment_layout(param).dtype;
  std::vector<comm::Pending> received;
  for (int rank = 0; rank < group.size(); ++rank) {
    const ElementRange held = optimizer.shares()->of_param(param, rank);
    const ElementRange part = overlap(held, piece);
    if (part.count == 0) continue;
    const std::span<std::byte> at = part_of_moment(dst, dtype, part, piece.begin);
    if (rank == 0) {
      std::ranges::copy(part_of_moment(bytes_of(own), dtype, part, held.begin), at.begin());
    } else {
      received.push_back(group.receive(rank, at, moment_tag(param, moment)));
    }
  }
  for (const comm::Pending& message : received) JIGE_DO(message.wait());
  return {};
}

Status send_moment(comm::AsyncGroup& group, const Optimizer& optimizer, size_t param, int moment) {
  const ElementRange& held = optimizer.held(param);
  if (held.count == 0) return {};
  const int64_t count = optimizer.params()[param].spec->shape.count();
  const ops::MomentLayout layout = optimizer.moment_layout(param);
  const int64_t step = piece_elements(layout);
  const std::span<const std::byte> own = bytes_of(moment_of(optimizer, param, moment));
  std::vector<comm::Pending> sent;
  for (int64_t begin = 0; begin < count; begin += step) {
    const ElementRange part = overlap(held, {begin, std::min(step, count - begin)});
    if (part.count == 0) continue;
    const auto bytes = part_of_moment(own, layout.dtype, part, held.begin);
    sent.push_back(group.send(0, bytes, moment_tag(param, moment)));
  }
  for (const comm::Pending& message : sent) JIGE_DO(message.wait());
  return {};
}

}  // namespace

Status share_state(comm::AsyncGroup& group, RunState& state, Optimizer& optimizer,
                   const formats::CheckpointReader* checkpoint) {
  std::string text = group.rank() == 0 ? dump_json(state.to_json()) : "";
  auto length = static_cast<int64_t>(text.size());
  JIGE_DO(broadcast_bytes(group, 0, std::as_writable_bytes(std::span(&length, 1))));
  if (length < 0 || length > kStateBytesMax) {
    return fail(Code::kCorrupt, "rank 0 gives a state of {} bytes", length);
  }
  text.resize(static_cast<size_t>(length));
  JIGE_DO(broadcast_bytes(group, 0, std::as_writable_bytes(std::span(text))));
  JIGE_TRY(const Json json, parse_json(text, "the state of rank 0"));
  JIGE_TRY(state, RunState::from_json(json, "the state of rank 0"));
  optimizer.set_update_count(state.update_count);
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    JIGE_DO(broadcast_bytes(group, 0, bytes_of(optimizer.params()[i].value)));
    for (int k = 0; k < kMoments && state.update_count > 0; ++k) {
      JIGE_DO(optimizer.shares() ? share_moment(group, optimizer, i, k, checkpoint)
                                 : broadcast_bytes(group, 0, bytes_of(moment_of(optimizer, i, k))));
    }
  }
  return {};
}

MomentSource gathered_moments(comm::AsyncGroup& group, const Optimizer& optimizer) {
  return [&group, &optimizer](size_t param, int moment) {
    const model::ParamSpec& spec = *optimizer.params()[param].spec;
    const ops::MomentLayout layout = optimizer.moment_layout(param);
    formats::TensorSource source{.name = spec.name, .dtype = layout.dtype, .shape = layout.shape};
    source.produce = [&group, &optimizer, layout, count = spec.shape.count(), param,
                      moment](const formats::RowSink& sink) -> Status {
      const int64_t row = row_elements(layout);
      const int64_t step = piece_elements(layout);
      std::vector<std::byte> staging(
          static_cast<size_t>(ops::moment_bytes(layout.dtype, std::min(step, count))));
      for (int64_t begin = 0; begin < count; begin += step) {
        const ElementRange piece{begin, std::min(step, count - begin)};
        JIGE_DO(gather_piece(group, optimizer, param, moment, piece, staging));
        JIGE_DO(sink(TensorView::of(staging.data(), layout.dtype, layout.shape)
                         .row_range(0, (piece.count + row - 1) / row)));
      }
      return {};
    };
    return source;
  };
}

Status send_moments(comm::AsyncGroup& group, const Optimizer& optimizer) {
  // Files hold tensors of the largest type first, then by name (formats/safetensors_writer.h).
  std::vector<size_t> order(optimizer.params().size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    const int64_t element_bytes = dtype_bytes(optimizer.moment_layout(i).dtype, 1);
    return std::pair(-element_bytes, std::string_view(optimizer.params()[i].spec->name));
  });
  for (int k = 0; k < kMoments; ++k) {
    for (const size_t i : order) JIGE_DO(send_moment(group, optimizer, i, k));
  }
  return {};
}

}  // namespace jige::train
