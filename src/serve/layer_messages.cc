#include "serve/layer_messages.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/batch_limits.h"

namespace jige::serve {
namespace {

constexpr uint32_t kMagic = 0x594c474a;  // "JGLY"
constexpr std::string_view kFormat = "jige.layers";
constexpr int64_t kVersion = 2;
constexpr int64_t kLayerBytesMax = int64_t{1} << 40;
constexpr int64_t kNumbersOfSequence = 4;
constexpr int64_t kBytesPerSMax = int64_t{1} << 60;

template <typename T>
void put(std::vector<std::byte>& bytes, const T& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

tl::unexpected<Error> broken(const std::string& peer, std::string_view what) {
  return fail(Code::kCorrupt, "{} sent {}; is the same version of jige there?", peer, what);
}

Result<int64_t> get_amount(const Json& json, std::string_view field, int64_t max,
                           const std::string& peer) {
  JIGE_TRY(const int64_t value, get_int(json, field, peer));
  if (value >= 0 && value <= max) return value;
  return broken(peer, fmt::format("{} as \"{}\"", value, field));
}

template <typename T, typename Name>
Result<T> get_named(const Json& json, std::string_view field, std::span<const T> values,
                    const Name& name, const std::string& peer) {
  JIGE_TRY(const std::string text, get_string(json, field, peer));
  for (const T value : values) {
    if (name(value) == text) return value;
  }
  return broken(peer, fmt::format("\"{}\" as \"{}\"", text, field));
}

std::string dtype_text(DType dtype) { return std::string(dtype_info(dtype).name); }

}  // namespace

std::vector<std::byte> layer_header(LayerMessage kind, int64_t bytes) {
  std::vector<std::byte> header;
  put(header, kMagic);
  put(header, static_cast<uint32_t>(kind));
  put(header, static_cast<uint64_t>(bytes));
  return header;
}

Result<LayerHeader> read_layer_header(std::span<const std::byte> bytes, const std::string& peer) {
  uint32_t words[2];
  uint64_t size = 0;
  if (bytes.size() != kLayerHeaderBytes) return broken(peer, "half a message");
  std::memcpy(words, bytes.data(), sizeof words);
  std::memcpy(&size, bytes.data() + sizeof words, sizeof size);
  if (words[0] != kMagic || words[1] > static_cast<uint32_t>(LayerMessage::kError) ||
      size > static_cast<uint64_t>(kLayerBytesMax)) {
    return broken(peer, "what is no message about layers");
  }
  return LayerHeader{.kind = static_cast<LayerMessage>(words[1]),
                     .bytes = static_cast<int64_t>(size)};
}

std::string greeting_text(const LayerGreeting& greeting) {
  return dump_json({{"format", kFormat},
                    {"version", kVersion},
                    {"digest", greeting.digest},
                    {"memory_bytes", greeting.memory_bytes},
                    {"gpu", greeting.computer.is_gpu},
                    {"bytes_per_s", greeting.computer.bytes_per_s},
                    {"kernels", greeting.computer.kernels}});
}

Result<LayerGreeting> parse_greeting(std::string_view text, const std::string& peer) {
  JIGE_TRY(const Json json, parse_json(text, peer));
  JIGE_TRY(const std::string format, get_string_or(json, "format", "", peer));
  JIGE_TRY(const int64_t version, get_int_or(json, "version", 0, peer));
  if (format != kFormat) return broken(peer, "no greeting of who holds layers");
  if (version != kVersion) {
    return fail(Code::kUnsupported, "{} speaks version {} of messages about layers, this is {}",
                peer, version, kVersion);
  }
  LayerGreeting greeting;
  JIGE_TRY(greeting.digest, get_string(json, "digest", peer));
  JIGE_TRY(greeting.memory_bytes, get_amount(json, "memory_bytes", INT64_MAX, peer));
  LayerComputer& computer = greeting.computer;
  JIGE_TRY(computer.is_gpu, get_bool_or(json, "gpu", false, peer));
  JIGE_TRY(computer.bytes_per_s, get_amount(json, "bytes_per_s", kBytesPerSMax, peer));
  JIGE_TRY(computer.kernels, get_string(json, "kernels", peer));
  if (computer.bytes_per_s == 0) return broken(peer, "0 as \"bytes_per_s\"");
  return greeting;
}

std::string hold_text(const model::InferenceSizes& sizes) {
  return dump_json({{"layers", {sizes.layers.begin, sizes.layers.end}},
                    {"compute", dtype_text(sizes.compute)},
                    {"kv", dtype_text(sizes.kv_dtype)},
                    {"weights", ops::weight_format_name(sizes.format)},
                    {"context", sizes.context_max},
                    {"blocks", sizes.kv_block_count},
                    {"states", sizes.state_count},
                    {"batch_tokens", sizes.batch_tokens_max}});
}

Result<model::InferenceOptions> parse_hold(std::string_view text, const std::string& peer) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kI8};
  JIGE_TRY(const Json json, parse_json(text, peer));
  const Json* const layers = find_field(json, "layers");
  if (!layers || !layers->is_array() || layers->size() != 2 || !(*layers)[0].is_number_integer() ||
      !(*layers)[1].is_number_integer()) {
    return broken(peer, "no \"layers\"");
  }
  model::InferenceOptions options{.logit_rows_max = 1};
  options.layers = {
      .begin = (*layers)[0].get<int64_t>(), .end = (*layers)[1].get<int64_t>(), .ends = false};
  const auto types = std::span<const DType>(kTypes);
  JIGE_TRY(options.compute, get_named(json, "compute", types.first(2), dtype_text, peer));
  JIGE_TRY(options.kv_dtype, get_named(json, "kv", types, dtype_text, peer));
  JIGE_TRY(options.format,
           get_named(json, "weights", std::span<const ops::WeightFormat>(ops::kWeightFormats),
                     ops::weight_format_name, peer));
  JIGE_TRY(options.context_max, get_amount(json, "context", INT32_MAX, peer));
  JIGE_TRY(options.kv_block_count, get_amount(json, "blocks", INT32_MAX, peer));
  JIGE_TRY(options.state_count, get_amount(json, "states", INT32_MAX, peer));
  JIGE_TRY(options.batch_tokens_max, get_amount(json, "batch_tokens", INT32_MAX, peer));
  return options;
}

std::string error_text(const Error& error) {
  return dump_json({{"code", static_cast<int>(error.code)}, {"message", error.message}});
}

Error parse_layer_error(std::string_view text, const std::string& peer) {
  const auto json = parse_json(text, peer);
  const auto code = json ? get_int_or(*json, "code", -1, peer) : Result<int64_t>(-1);
  auto message = json ? get_string_or(*json, "message", "", peer) : Result<std::string>("");
  if (!code || !message || *code < 0 || *code > static_cast<int>(Code::kCancelled)) {
    return broken(peer, "an error that cannot be read").value();
  }
  // Where that one was stopped, a peer is lost here.
  const auto kind = static_cast<Code>(*code);
  return {kind == Code::kCancelled ? Code::kUnavailable : kind, peer + ": " + *message};
}

std::vector<std::byte> rows_head(std::span<const ops::SequenceSpan> sequences, int64_t row_count,
                                 int64_t row_bytes) {
  std::vector<std::byte> body;
  put(body, static_cast<uint32_t>(sequences.size()));
  put(body, static_cast<uint32_t>(row_count));
  for (const ops::SequenceSpan& sequence : sequences) {
    const int64_t tokens = int64_t{sequence.context_count} + sequence.row_count;
    const int32_t numbers[kNumbersOfSequence] = {
        sequence.row_count, sequence.context_count, sequence.state,
        static_cast<int32_t>(model::kv_blocks_for(tokens))};
    put(body, numbers);
  }
  for (const ops::SequenceSpan& sequence : sequences) {
    const int64_t tokens = int64_t{sequence.context_count} + sequence.row_count;
    for (int64_t i = 0; i < model::kv_blocks_for(tokens); ++i) put(body, sequence.blocks[i]);
  }
  std::vector<std::byte> message =
      layer_header(LayerMessage::kRows, std::ssize(body) + row_count * row_bytes);
  message.insert(message.end(), body.begin(), body.end());
  return message;
}

Status read_sequences(int64_t bytes, int64_t rows_max, int64_t context_max, int64_t row_bytes,
                      const std::string& peer,
                      const std::function<Status(std::span<std::byte>)>& read,
                      SentSequences* sequences) {
  uint32_t counts[2];
  if (bytes < static_cast<int64_t>(sizeof counts)) return broken(peer, "a message without rows");
  JIGE_DO(read(std::as_writable_bytes(std::span(counts))));
  if (counts[0] == 0 || counts[0] > counts[1] || counts[1] > rows_max) {
    return broken(peer, fmt::format("{} rows of {} sequences, where {} rows were agreed on",
                                    counts[1], counts[0], rows_max));
  }
  std::vector<int32_t> numbers(static_cast<size_t>(counts[0]) * kNumbersOfSequence);
  JIGE_DO(read(std::as_writable_bytes(std::span(numbers))));
  int64_t rows = 0, blocks = 0;
  sequences->sequences.clear();
  for (size_t i = 0; i < numbers.size(); i += kNumbersOfSequence) {
    const ops::SequenceSpan sequence{.row_begin = static_cast<int32_t>(rows),
                                     .row_count = numbers[i],
                                     .context_count = numbers[i + 1],
                                     .state = numbers[i + 2]};
    const int64_t tokens = int64_t{sequence.context_count} + sequence.row_count;
    if (sequence.row_count < 1 || sequence.context_count < 0 || tokens > context_max ||
        numbers[i + 3] != model::kv_blocks_for(tokens)) {
      return broken(peer, "a sequence that contradicts itself");
    }
    rows += sequence.row_count;
    blocks += numbers[i + 3];
    sequences->sequences.push_back(sequence);
  }
  const int64_t told =
      static_cast<int64_t>(sizeof counts) + std::ssize(numbers) * 4 + blocks * 4 + rows * row_bytes;
  if (rows != counts[1] || told != bytes) return broken(peer, "rows of another size than it said");
  sequences->row_count = rows;
  sequences->blocks.resize(static_cast<size_t>(blocks));
  JIGE_DO(read(std::as_writable_bytes(std::span(sequences->blocks))));
  const int32_t* next = sequences->blocks.data();
  for (ops::SequenceSpan& sequence : sequences->sequences) {
    sequence.blocks = next;
    next += model::kv_blocks_for(int64_t{sequence.context_count} + sequence.row_count);
  }
  return {};
}

std::vector<std::byte> copy_message(const LayerCopy& copy) {
  std::vector<std::byte> message = layer_header(LayerMessage::kCopy, kLayerCopyBytes);
  put(message, int32_t{copy.is_state});
  put(message, copy.src);
  put(message, copy.dst);
  return message;
}

Result<LayerCopy> parse_copy(std::span<const std::byte> bytes, const std::string& peer) {
  int32_t numbers[3];
  if (bytes.size() != sizeof numbers) return broken(peer, "a copy of another size");
  std::memcpy(numbers, bytes.data(), sizeof numbers);
  if (numbers[0] != 0 && numbers[0] != 1) return broken(peer, "a copy of nothing");
  return LayerCopy{.is_state = numbers[0] == 1, .src = numbers[1], .dst = numbers[2]};
}

Status send_text(comm::Socket& socket, LayerMessage kind, const std::string& text,
                 comm::Deadline deadline) {
  std::vector<std::byte> message = layer_header(kind, std::ssize(text));
  const auto bytes = std::as_bytes(std::span(text));
  message.insert(message.end(), bytes.begin(), bytes.end());
  return socket.send_all(message, deadline);
}

Result<std::string> receive_text(comm::Socket& socket, LayerMessage kind, comm::Deadline deadline) {
  std::byte bytes[kLayerHeaderBytes];
  JIGE_DO(socket.recv_all(bytes, deadline));
  JIGE_TRY(const LayerHeader header, read_layer_header(bytes, socket.peer()));
  if (header.bytes > kLayerTextBytesMax ||
      (header.kind != kind && header.kind != LayerMessage::kError)) {
    return broken(socket.peer(), "another message than was awaited");
  }
  std::string text(static_cast<size_t>(header.bytes), '\0');
  JIGE_DO(socket.recv_all(std::as_writable_bytes(std::span(text)), deadline));
  if (header.kind == LayerMessage::kError && kind != LayerMessage::kError) {
    return tl::unexpected(parse_layer_error(text, socket.peer()));
  }
  return text;
}

void watch_peer(const comm::Socket& socket) {
  const int on = 1, idle_s = 10, between_s = 5, tries = 4;
  setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

}  // namespace jige::serve
