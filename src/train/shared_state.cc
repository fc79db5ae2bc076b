#include "train/shared_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
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

// Elements of the rows of a moment that are written at once; a function of its shape alone.
int64_t piece_elements(const Shape& shape) {
  const int64_t row = std::max<int64_t>(shape.row_count_elements(), 1);
  return std::max<int64_t>(kSavedPieceBytes / (4 * row), 1) * row;
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
    const std::span<std::byte> bytes = bytes_of(whole).subspan(static_cast<size_t>(part.begin) * 4,
                                                               static_cast<size_t>(part.count) * 4);
    sent.push_back(group.send(rank, bytes, tag));
  }
  for (const comm::Pending& message : sent) JIGE_DO(message.wait());
  return {};
}

// The elements [piece.begin, piece.end()) of a moment, from all who hold a part of them.
Status gather_piece(comm::AsyncGroup& group, const Optimizer& optimizer, size_t param, int moment,
                    const ElementRange& piece, std::span<float> dst) {
  std::vector<comm::Pending> received;
  for (int rank = 0; rank < group.size(); ++rank) {
    const ElementRange held = optimizer.shares()->of_param(param, rank);
    const ElementRange part = overlap(held, piece);
    if (part.count == 0) continue;
    const std::span<float> at =
        dst.subspan(static_cast<size_t>(part.begin - piece.begin), static_cast<size_t>(part.count));
    if (rank == 0) {
      const float* own = moment_of(optimizer, param, moment).as<float>();
      std::copy_n(own + (part.begin - held.begin), part.count, at.begin());
    } else {
      received.push_back(
          group.receive(rank, std::as_writable_bytes(at), moment_tag(param, moment)));
    }
  }
  for (const comm::Pending& message : received) JIGE_DO(message.wait());
  return {};
}

Status send_moment(comm::AsyncGroup& group, const Optimizer& optimizer, size_t param, int moment) {
  const ElementRange& held = optimizer.held(param);
  if (held.count == 0) return {};
  const Shape& shape = optimizer.params()[param].spec->shape;
  const int64_t step = piece_elements(shape);
  const std::span<const std::byte> own = bytes_of(moment_of(optimizer, param, moment));
  std::vector<comm::Pending> sent;
  for (int64_t begin = 0; begin < shape.count(); begin += step) {
    const ElementRange part = overlap(held, {begin, std::min(step, shape.count() - begin)});
    if (part.count == 0) continue;
    const auto bytes = own.subspan(static_cast<size_t>(part.begin - held.begin) * 4,
                                   static_cast<size_t>(part.count) * 4);
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
    formats::TensorSource source{.name = spec.name, .dtype = DType::kF32, .shape = spec.shape};
    source.produce = [&group, &optimizer, &spec, param,
                      moment](const formats::RowSink& sink) -> Status {
      const int64_t row = std::max<int64_t>(spec.shape.row_count_elements(), 1);
      const int64_t step = piece_elements(spec.shape);
      std::vector<float> staging(static_cast<size_t>(std::min(step, spec.shape.count())));
      for (int64_t begin = 0; begin < spec.shape.count(); begin += step) {
        const ElementRange piece{begin, std::min(step, spec.shape.count() - begin)};
        JIGE_DO(gather_piece(group, optimizer, param, moment, piece, staging));
        JIGE_DO(sink(TensorView::of(staging.data(), DType::kF32, spec.shape)
                         .row_range(0, piece.count / row)));
      }
      return {};
    };
    return source;
  };
}

Status send_moments(comm::AsyncGroup& group, const Optimizer& optimizer) {
  // Files hold tensors by name.
  std::vector<size_t> order(optimizer.params().size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return optimizer.params()[i].spec->name; });
  for (int k = 0; k < kMoments; ++k) {
    for (const size_t i : order) JIGE_DO(send_moment(group, optimizer, i, k));
  }
  return {};
}

}  // namespace jige::train
