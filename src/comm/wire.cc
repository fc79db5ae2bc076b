#include "comm/wire.h"

#include <bit>
#include <cstring>

namespace jige::comm {
namespace {

constexpr uint32_t kHeaderMagic = 0x3243474A;  // "JGC2"
constexpr size_t kHashAt = 60;
constexpr size_t kZerosAt = 48;
constexpr int kDTypeCount = 7;
constexpr int kPathCount = 4;

using Words = std::array<uint64_t, kHeaderBytes / 8>;
static_assert(std::endian::native == std::endian::little);

template <typename T>
T get(std::span<const std::byte> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

// Of all but the upper half of the last word, where it stands. Each step is one to one in the word
// and in the hash so far, so no change of one word is lost.
uint32_t hash_words(const Words& words) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  uint64_t hash = static_cast<uint32_t>(words.back());
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    hash = (hash ^ words[i]) * kOdd;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

uint64_t word_of(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

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
  const uint32_t kinds =
      static_cast<uint32_t>(header.collective) | static_cast<uint32_t>(header.dtype) << 8 |
      static_cast<uint32_t>(header.redop) << 16 | static_cast<uint32_t>(header.path) << 24;
  Words words = {word_of(kHeaderMagic, kinds),
                 header.sequence,
                 static_cast<uint64_t>(header.count),
                 word_of(static_cast<uint32_t>(header.root), header.plan),
                 word_of(static_cast<uint32_t>(header.sender), header.part),
                 header.payload_bytes,
                 0,
                 0};
  words.back() = word_of(0, hash_words(words));
  return std::bit_cast<std::array<std::byte, kHeaderBytes>>(words);
}

Result<Header> parse_header(std::span<const std::byte, kHeaderBytes> bytes) {
  if (get<uint32_t>(bytes, 0) != kHeaderMagic) {
    return fail(Code::kCorrupt, "what came is not a message of Jige's collectives");
  }
  Words words;
  std::memcpy(words.data(), bytes.data(), kHeaderBytes);
  if (get<uint32_t>(bytes, kHashAt) != hash_words(words)) {
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
