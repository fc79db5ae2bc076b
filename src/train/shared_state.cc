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

// Between a tensor of a device, which begins with the byte `begin`, and as many bytes of the host.
void bytes_from_device(Stream& stream, const TensorView& view, int64_t begin,
                       std::span<std::byte> dst) {
  stream.copy(dst.data(), static_cast<const std::byte*>(view.data) + begin,
              static_cast<int64_t>(dst.size()), CopyKind::kDeviceToHost);
  stream.synchronize();
}

void bytes_to_device(Stream& stream, std::span<const std::byte> src, const TensorView& view,
                     int64_t begin) {
  stream.copy(static_cast<std::byte*>(view.data) + begin, src.data(),
              static_cast<int64_t>(src.size()), CopyKind::kHostToDevice);
  stream.synchronize();
}

// Gives all ranks rank 0's.
Status broadcast_tensor(comm::AsyncGroup& group, Stream& stream, const TensorView& view) {
  const int64_t bytes = dtype_bytes(view.dtype, view.count());
  std::vector<std::byte> staging(static_cast<size_t>(std::min(kSavedPieceBytes, bytes)));
  for (int64_t begin = 0; begin < bytes; begin += kSavedPieceBytes) {
    const auto piece =
        std::span(staging).first(static_cast<size_t>(std::min(kSavedPieceBytes, bytes - begin)));
    if (group.rank() == 0) bytes_from_device(stream, view, begin, piece);
    JIGE_DO(broadcast_bytes(group, 0, piece));
    if (group.rank() != 0) bytes_to_device(stream, piece, view, begin);
  }
  return {};
}

// A moment of a parameter, which goes from rank to rank in pieces.
struct MovedMoment {
  size_t param = 0;
  int moment = 0;
  ops::MomentLayout layout;  // of the whole

  uint64_t tag() const { return moment_tag(param, moment); }
  // Calls `visit` with the parts of what a rank holds, those of one piece each, in order.
  template <typename Visit>
  Status each_part(const ElementRange& held, int64_t count, const Visit& visit) const {
    const int64_t step = piece_elements(layout);
    for (int64_t begin = 0; begin < count; begin += step) {
      const ElementRange part = overlap(held, {begin, std::min(step, count - begin)});
      if (part.count > 0) JIGE_DO(visit(part));
    }
    return {};
  }
};

MovedMoment moved_moment(const Optimizer& optimizer, size_t param, int moment) {
  return {param, moment, optimizer.moment_layout(param)};
}

int64_t element_count(const Optimizer& optimizer, size_t param) {
  return optimizer.params()[param].spec->shape.count();
}

// Room for the bytes of a part of a moment.
std::span<std::byte> room_for(std::vector<std::byte>& staging, DType dtype,
                              const ElementRange& part) {
  staging.resize(static_cast<size_t>(ops::moment_bytes(dtype, part.end()) -
                                     ops::moment_bytes(dtype, part.begin)));
  return staging;
}

// Rank 0 has the whole moment in its checkpoint; the others get what they hold.
Status share_moment(comm::AsyncGroup& group, Optimizer& optimizer, size_t param, int moment,
                    const formats::CheckpointReader* checkpoint, Stream& stream) {
  const MovedMoment moved = moved_moment(optimizer, param, moment);
  const DType dtype = moved.layout.dtype;
  const int64_t count = element_count(optimizer, param);
  if (group.rank() != 0) {
    const ElementRange& held = optimizer.held(param);
    std::vector<std::byte> staging;
    return moved.each_part(held, count, [&](const ElementRange& part) -> Status {
      const std::span<std::byte> bytes = room_for(staging, dtype, part);
      JIGE_DO(group.receive(0, bytes, moved.tag()).wait());
      bytes_to_device(stream, bytes, moment_of(optimizer, param, moment),
                      ops::moment_bytes(dtype, part.begin) - ops::moment_bytes(dtype, held.begin));
      return {};
    });
  }
  JIGE_CHECK(checkpoint, "moments are to be divided, and there is no checkpoint with them");
  const char* file = moment == 0 ? kCheckpointMoments1 : kCheckpointMoments2;
  JIGE_TRY(const TensorView whole, checkpoint->tensor(file, optimizer.params()[param].spec->name));
  std::vector<comm::Pending> sent;
  for (int rank = 1; rank < group.size(); ++rank) {
    const ElementRange held = optimizer.shares()->of_param(param, rank);
    JIGE_DO(moved.each_part(held, count, [&](const ElementRange& part) -> Status {
      const auto bytes = part_of_moment(bytes_of(whole), dtype, part, 0);
      sent.push_back(group.send(rank, bytes, moved.tag()));
      return {};
    }));
  }
  for (const comm::Pending& message : sent) JIGE_DO(message.wait());
  return {};
}

// The elements [piece.begin, piece.end()) of a moment, from all who hold a part of them.
Status gather_piece(comm::AsyncGroup& group, const Optimizer& optimizer, const MovedMoment& moved,
                    const ElementRange& piece, std::span<std::byte> dst, Stream& stream) {
  const DType dtype = moved.layout.dtype;
  std::vector<comm::Pending> received;
  for (int rank = 0; rank < group.size(); ++rank) {
    const ElementRange held = optimizer.shares()->of_param(moved.param, rank);
    const ElementRange part = overlap(held, piece);
    if (part.count == 0) continue;
    const std::span<std::byte> at = part_of_moment(dst, dtype, part, piece.begin);
    if (rank == 0) {
      bytes_from_device(stream, moment_of(optimizer, moved.param, moved.moment),
                        ops::moment_bytes(dtype, part.begin) - ops::moment_bytes(dtype, held.begin),
                        at);
    } else {
      received.push_back(group.receive(rank, at, moved.tag()));
    }
  }
  for (const comm::Pending& message : received) JIGE_DO(message.wait());
  return {};
}

Status send_moment(comm::AsyncGroup& group, const Optimizer& optimizer, size_t param, int moment,
                   Stream& stream) {
  const MovedMoment moved = moved_moment(optimizer, param, moment);
  const DType dtype = moved.layout.dtype;
  const ElementRange& held = optimizer.held(param);
  std::vector<std::byte> staging;
  return moved.each_part(
      held, element_count(optimizer, param), [&](const ElementRange& part) -> Status {
        const std::span<std::byte> bytes = room_for(staging, dtype, part);
        bytes_from_device(
            stream, moment_of(optimizer, param, moment),
            ops::moment_bytes(dtype, part.begin) - ops::moment_bytes(dtype, held.begin), bytes);
        return group.send(0, bytes, moved.tag()).wait();
      });
}

}  // namespace

Status share_state(comm::AsyncGroup& group, RunState& state, Optimizer& optimizer,
                   const formats::CheckpointReader* checkpoint, Stream& stream) {
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
    JIGE_DO(broadcast_tensor(group, stream, optimizer.params()[i].value));
    for (int k = 0; k < kMoments && state.update_count > 0; ++k) {
      JIGE_DO(optimizer.shares() ? share_moment(group, optimizer, i, k, checkpoint, stream)
                                 : broadcast_tensor(group, stream, moment_of(optimizer, i, k)));
    }
  }
  return {};
}

MomentSource gathered_moments(comm::AsyncGroup& group, const Optimizer& optimizer, Stream& stream) {
  return [&group, &optimizer, &stream](size_t param, int moment) {
    const model::ParamSpec& spec = *optimizer.params()[param].spec;
    const ops::MomentLayout layout = optimizer.moment_layout(param);
    formats::TensorSource source{.name = spec.name, .dtype = layout.dtype, .shape = layout.shape};
    source.produce =
        [&group, &optimizer, &stream, layout, count = spec.shape.count(),
         moved = moved_moment(optimizer, param, moment)](const formats::RowSink& sink) -> Status {
      const int64_t row = row_elements(layout);
      const int64_t step = piece_elements(layout);
      std::vector<std::byte> staging(
          static_cast<size_t>(ops::moment_bytes(layout.dtype, std::min(step, count))));
      for (int64_t begin = 0; begin < count; begin += step) {
        const ElementRange piece{begin, std::min(step, count - begin)};
        JIGE_DO(gather_piece(group, optimizer, moved, piece, staging, stream));
        JIGE_DO(sink(TensorView::of(staging.data(), layout.dtype, layout.shape)
                         .row_range(0, (piece.count + row - 1) / row)));
      }
      return {};
    };
    return source;
  };
}

Status send_moments(comm::AsyncGroup& group, const Optimizer& optimizer, Stream& stream) {
  // Files hold tensors of the largest type first, then by name (formats/safetensors_writer.h).
  std::vector<size_t> order(optimizer.params().size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    const int64_t element_bytes = dtype_bytes(optimizer.moment_layout(i).dtype, 1);
    return std::pair(-element_bytes, std::string_view(optimizer.params()[i].spec->name));
  });
  for (int k = 0; k < kMoments; ++k) {
    for (const size_t i : order) JIGE_DO(send_moment(group, optimizer, i, k, stream));
  }
  return {};
}

}  // namespace jige::train
