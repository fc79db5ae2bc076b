// Messages between a program that runs a model and others that hold some of its layers.
//
// A header of 16 bytes, { u32 "JGLY", u32 kind, u64 bytes behind it }, little-endian, and
//   greeting  holder     JSON: format, version, digest of the folder, memory, what computes
//   hold      to it      JSON: which layers, in what types, for how many tokens
//   held      holder     JSON: bytes that are taken
//   rows      to it      u32 sequences, u32 rows; of each sequence { i32 rows, context, state,
//                        blocks }; the numbers of all blocks, i32; the rows, f32
//   done      holder     the rows behind the layers, f32
//             within a process rows are lent (lent_rows.h), and none stand in these two
//   copy      to it      i32 what (0: a cache block, 1: a state), from, to; no answer
//   error     holder     JSON: code and text; the connection ends
// Rows are answered in their order. Whoever reads checks sizes against what was agreed before
// memory is taken. Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/socket.h"
#include "model/inference.h"
#include "serve/layer_computer.h"

namespace jige::serve {

enum class LayerMessage : uint32_t { kGreeting, kHold, kHeld, kRows, kDone, kCopy, kError };

inline constexpr int64_t kLayerTextBytesMax = 64 << 10;  // of a message in JSON

struct LayerHeader {
  LayerMessage kind = LayerMessage::kError;
  int64_t bytes = 0;
};
inline constexpr size_t kLayerHeaderBytes = 16;
std::vector<std::byte> layer_header(LayerMessage kind, int64_t bytes);
// Fails with kCorrupt, naming the peer.
Result<LayerHeader> read_layer_header(std::span<const std::byte> bytes, const std::string& peer);

struct LayerGreeting {
  std::string digest;        // formats::folder_digest
  int64_t memory_bytes = 0;  // for layers and buffers
  LayerComputer computer;
};
std::string greeting_text(const LayerGreeting& greeting);
// Fails with kCorrupt, and kUnsupported on another version.
Result<LayerGreeting> parse_greeting(std::string_view text, const std::string& peer);

// What a holder is asked for: layers [begin, end), and all that InferenceOptions leave open.
std::string hold_text(const model::InferenceSizes& sizes);
// Fails with kCorrupt.
Result<model::InferenceOptions> parse_hold(std::string_view text, const std::string& peer);

std::string error_text(const Error& error);
// The error that a peer tells of, in its name.
Error parse_layer_error(std::string_view text, const std::string& peer);

// Sequences as they stand in a message; their blocks are in one list.
struct SentSequences {
  std::vector<ops::SequenceSpan> sequences;  // blocks point into `blocks`
  std::vector<int32_t> blocks;
  int64_t row_count = 0;
};
// The header of a message of rows and its sequences; the rows follow.
std::vector<std::byte> rows_head(std::span<const ops::SequenceSpan> sequences, int64_t row_count,
                                 int64_t row_bytes);
// What stands in front of the rows of a message of so many bytes. `read` gives the next bytes of
// it. Fails with kCorrupt where counts are beyond `rows_max` and `context_max` or contradict the
// size.
Status read_sequences(int64_t bytes, int64_t rows_max, int64_t context_max, int64_t row_bytes,
                      const std::string& peer,
                      const std::function<Status(std::span<std::byte>)>& read,
                      SentSequences* sequences);

struct LayerCopy {
  bool is_state = false;
  int32_t src = 0, dst = 0;
};
inline constexpr int64_t kLayerCopyBytes = 12;
std::vector<std::byte> copy_message(const LayerCopy& copy);
// REQUIRES: kLayerCopyBytes. Fails with kCorrupt.
Result<LayerCopy> parse_copy(std::span<const std::byte> bytes, const std::string& peer);

// A message in JSON, both ways. receive_text fails with what the peer tells where that is an error,
// and with kCorrupt on another kind.
Status send_text(comm::Socket& socket, LayerMessage kind, const std::string& text,
                 comm::Deadline deadline);
Result<std::string> receive_text(comm::Socket& socket, LayerMessage kind, comm::Deadline deadline);

// Ends a connection whose other machine has gone without a word, within half a minute.
void watch_peer(const comm::Socket& socket);

}  // namespace jige::serve
