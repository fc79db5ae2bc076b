// Backward attention of pieces of sequences: checks, and tiles of rows and keys as work. Every cut
// gives the same bits, see kernels/cpu/attention.h.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/attention.h"
#include "ops/attention_schedule.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

struct PieceWork {
  size_t piece = 0;
  int32_t kv_head = 0;
  bool is_keys = false;
  int32_t begin = 0;  // of query rows or keys, counted from the sequence's first
  int32_t count = 0;
  double cost = 0;
};

// Tiles of the piece's query rows give grad_q; those of the sequence's keys in which the piece has
// some give the rest.
void add_piece_works(const AttentionBackwardPieces& args, PieceWork work,
                     std::vector<PieceWork>* works) {
  const SequencePiece& piece = args.pieces[work.piece];
  const int64_t heads = args.shape.head_count / args.shape.kv_head_count;
  const int64_t window = attention_window(args.shape);
  const auto seen = [&](int64_t positions) {
    return static_cast<double>(window > 0 ? std::min(positions, window) : positions);
  };
  const int64_t end = int64_t{piece.position} + piece.row_count;
  work.is_keys = false;
  for (int64_t row = piece.position * heads; row < end * heads; row += cpu::kAttentionRowsMax) {
    work.begin = static_cast<int32_t>(row);
    work.count = static_cast<int32_t>(std::min<int64_t>(end * heads - row, cpu::kAttentionRowsMax));
    work.cost = 3.0 * seen((row + work.count) / heads) * work.count;
    works->push_back(work);
  }
  work.is_keys = true;
  work.count = cpu::kAttentionTileKeys;
  for (int64_t key = first_query_row(piece); key < end; key += cpu::kAttentionTileKeys) {
    work.begin = static_cast<int32_t>(key);
    work.cost = 4.0 * seen(piece.whole_count - key) * static_cast<double>(heads * work.count);
    works->push_back(work);
  }
}

std::vector<PieceWork> make_piece_works(const AttentionBackwardPieces& args) {
  std::vector<PieceWork> works;
  for (size_t i = 0; i < args.pieces.size(); ++i) {
    for (int32_t head = 0; head < args.shape.kv_head_count; ++head) {
      add_piece_works(args, {.piece = i, .kv_head = head}, &works);
    }
  }
  std::stable_sort(works.begin(), works.end(),
                   [](const PieceWork& a, const PieceWork& b) { return a.cost > b.cost; });
  return works;
}

cpu::AttentionGradients piece_gradients(const AttentionBackwardPieces& args,
                                        const PieceWork& work) {
  const SequencePiece& piece = args.pieces[work.piece];
  cpu::AttentionGradients gradients =
      attention_gradients(args, work.kv_head, piece.whole_begin, piece.row_begin);
  // Keys behind the piece are none of its queries', and may not be there.
  gradients.length = work.is_keys ? piece.whole_count : piece.position + piece.row_count;
  gradients.grad_q_begin = gradients.grad_k_begin = piece.position;
  gradients.grad_k_end = piece.position + piece.row_count;
  return gradients;
}

void check_pieces(const AttentionBackwardPieces& args) {
  const AttentionShape& shape = args.shape;
  check_attention_shape(shape);
  check_looks_back(shape);
  const int64_t rows = args.grad_q.rows();
  const int64_t whole_rows = args.q.rows();
  const int64_t q_columns = shape.head_count * shape.head_dim;
  const int64_t kv_columns = shape.kv_head_count * shape.head_dim;
  check_attention_matrix(args.grad_q, "grad_q", rows, q_columns);
  check_attention_matrix(args.grad_k, "grad_k", rows, kv_columns);
  check_attention_matrix(args.grad_v, "grad_v", rows, kv_columns);
  check_attention_matrix(args.q, "q", whole_rows, q_columns);
  check_attention_matrix(args.dst, "dst", whole_rows, q_columns);
  check_attention_matrix(args.grad_dst, "grad_dst", whole_rows, q_columns);
  check_attention_matrix(args.k, "k", whole_rows, kv_columns);
  check_attention_matrix(args.v, "v", whole_rows, kv_columns);
  check_attention_matrix(args.lse, "lse", whole_rows, shape.head_count);
  JIGE_CHECK(args.lse.dtype == DType::kF32, "lse is {}", dtype_info(args.lse.dtype).name);
  std::vector<SequenceSpan> here, whole;
  for (const SequencePiece& piece : args.pieces) {
    here.push_back({.row_begin = piece.row_begin, .row_count = piece.row_count});
    whole.push_back({.row_begin = piece.whole_begin, .row_count = piece.whole_count});
    JIGE_CHECK(
        piece.position >= 0 && int64_t{piece.position} + piece.row_count <= piece.whole_count,
        "rows {} + {} of a sequence of {}", piece.position, piece.row_count, piece.whole_count);
  }
  check_attention_sequences(here, rows, shape.head_count);
  check_attention_sequences(whole, whole_rows, shape.head_count);
}

}  // namespace

int32_t first_query_row(const SequencePiece& piece) {
  return piece.position / cpu::kAttentionTileKeys * cpu::kAttentionTileKeys;
}

void attention_backward_pieces(Stream& stream, const AttentionBackwardPieces& args) {
  check_pieces(args);
  CpuStream& cpu_stream = as_cpu(stream);
  CpuDevice* device = &cpu_stream.cpu();
  cpu_stream.submit([args, device] {
    const std::vector<PieceWork> works = make_piece_works(args);
    const int64_t scratch_bytes =
        cpu::attention_backward_scratch_bytes(static_cast<int32_t>(args.shape.head_dim));
    run_attention_work(
        device->team(), static_cast<int64_t>(works.size()), [&](int64_t i, int worker) {
          const PieceWork& work = works[static_cast<size_t>(i)];
          cpu::AttentionGradients gradients = piece_gradients(args, work);
          gradients.scratch = device->scratch(worker, scratch_bytes);
          work.is_keys ? cpu::attention_backward_keys(gradients, work.begin)
                       : cpu::attention_backward_queries(gradients, work.begin, work.count);
        });
  });
}

}  // namespace jige::ops
