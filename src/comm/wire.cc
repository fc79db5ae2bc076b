#include "comm/wire.h"

#include <cstring>

namespace jige::comm {
namespace {

constexpr uint32_t kMagic = 0x3243474A;  // "JGC2"
constexpr size_t kHashAt = 60;
constexpr size_t kZerosAt = 48;
constexpr int kDTypeCount = 7;
constexpr int kPathCount = 4;

template <typename T>
void put(std::span<std::byte> out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <typename T>
T get(std::span<const std::byte> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

// Each step is one to one in the word and in the hash so far, so no change of one word is lost.
uint32_t hash_words(std::span<const std::byte> bytes) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  uint64_t hash = get<uint32_t>(bytes, kHashAt - 4);
  for (size_t at = 0; at + 8 < kHashAt; at += 8) {
    hash = (hash ^ get<uint64_t>(bytes, at)) * kOdd;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace

std::string Header::text() const {
  if (path == Path::kMessage) {
    return fmt::format("message {} of {} bytes to rank {}", sequence, payload_bytes, root);
  }
  if (collective == Collective::kBarrier) return fmt::format("barrier, operation {}", sequence);
  std::string text =
      fmt::format("{} of {} {}", collective_name(collective), count, dtype_info(dtype).name);
  const bool reduces = collective == Collective::kAllReduce ||
                       collective == Collective::kReduceScatter ||
                       collective == Collective::kReduce;
  if (reduces) text += fmt::format(" ({})", redop_name(redop));
  if (collective == Collective::kBroadcast || collective == Collective::kReduce) {
    text += fmt::format(", root {}", root);
  }
  return text + fmt::format(", operation {}", sequence);
}

std::array<std::byte, kHeaderBytes> encode_header(const Header& header) {
  std::array<std::byte, kHeaderBytes> out = {};
  put(out, 0, kMagic);
  put(out, 4, static_cast<uint8_t>(header.collective));
  put(out, 5, static_cast<uint8_t>(header.dtype));
  put(out, 6, static_cast<uint8_t>(header.redop));
  put(out, 7, static_cast<uint8_t>(header.path));
  put(out, 8, header.sequence);
  put(out, 16, header.count);
  put(out, 24, header.root);
  put(out, 28, header.plan);
  put(out, 32, header.sender);
  put(out, 36, header.part);
  put(out, 40, header.payload_bytes);
  put(out, kHashAt, hash_words(out));
  return out;
}

Result<Header> parse_header(std::span<const std::byte, kHeaderBytes> bytes) {
  if (get<uint32_t>(bytes, 0) != kMagic) {
    return fail(Code::kCorrupt, "what came is not a message of Jige's collectives");
  }
  if (get<uint32_t>(bytes, kHashAt) != hash_words(bytes)) {
    return fail(Code::kCorrupt, "the header of a message is damaged");
  }
  const auto collective = get<uint8_t>(bytes, 4);
  const auto dtype = get<uint8_t>(bytes, 5);
  const auto redop = get<uint8_t>(bytes, 6);
  const auto path = get<uint8_t>(bytes, 7);
  bool zeros = true;
  for (size_t i = kZerosAt; i < kHashAt; ++i) zeros = zeros && bytes[i] == std::byte{0};
  const Header header = {.collective = static_cast<Collective>(collective),
                         .dtype = static_cast<DType>(dtype),
                         .redop = static_cast<RedOp>(redop),
                         .path = static_cast<Path>(path),
                         .sequence = get<uint64_t>(bytes, 8),
                         .count = get<int64_t>(bytes, 16),
                         .root = get<int32_t>(bytes, 24),
                         .plan = get<uint32_t>(bytes, 28),
                         .sender = get<int32_t>(bytes, 32),
                         .part = get<uint32_t>(bytes, 36),
                         .payload_bytes = get<uint64_t>(bytes, 40)};
  if (collective >= kCollectiveCount || dtype >= kDTypeCount || redop >= kRedOpCount ||
      path >= kPathCount || !zeros || header.count < 0 || header.sender < 0 || header.root < 0) {
    return fail(Code::kCorrupt, "the header of a message has a field out of range");
  }
  return header;
}

Status compare_headers(const Header& expected, const Header& got, const std::string& peer) {
  if (got == expected) return {};
  if (got.plan != expected.plan) {
    return fail(Code::kInvalidArgument,
                "{} has other rings than this rank; give all ranks the same", peer);
  }
  const std::string theirs = got.text();
  const std::string ours = expected.text();
  if (theirs != ours) {
    return fail(Code::kInvalidArgument, "{} calls {}; this rank calls {}", peer, theirs, ours);
  }
  return fail(Code::kInvalidArgument,
              "{} runs {} another way (path {}, part {}, {} bytes) than this rank (path {}, part "
              "{}, {} bytes); give all ranks the same tuning",
              peer, ours, static_cast<int>(got.path), got.part, got.payload_bytes,
              static_cast<int>(expected.path), expected.part, expected.payload_bytes);
}

}  // namespace jige::comm
