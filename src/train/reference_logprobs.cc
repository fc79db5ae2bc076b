#include "train/reference_logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "formats/xxhash64.h"

namespace jige::train {
namespace {

constexpr uint64_t kReferenceMagic = 0x534645524547494A;  // the bytes "JIGEREFS"
constexpr size_t kReferenceWords = 4;                     // of the header

static_assert(sizeof(ReferencePair) == 24, "pairs are written as they are");

tl::unexpected<Error> not_whole(const std::string& path) {
  return fail(Code::kCorrupt, "{}: is not whole", path);
}

}  // namespace

const PairLogProbs& find_reference(std::span<const ReferencePair> pairs, int64_t begin) {
  const auto found =
      std::lower_bound(pairs.begin(), pairs.end(), begin,
                       [](const ReferencePair& pair, int64_t value) { return pair.begin < value; });
  JIGE_CHECK(found != pairs.end() && found->begin == begin, "no reference of the pair at {}",
             begin);
  return found->logprobs;
}

std::string reference_path(const std::string& cache_folder, uint64_t key) {
  return fmt::format("{}/reference-{}.bin", cache_folder, formats::checksum_text(key));
}

Status write_reference(const std::string& path, uint64_t key, const ReferenceLogProbs& reference) {
  const std::array<uint64_t, kReferenceWords> header = {
      kReferenceMagic, key, reference.training.size(), reference.held_out.size()};
  formats::XxHash64 hash;
  JIGE_TRY(AtomicFile file, AtomicFile::create(path));
  const auto write = [&](const void* data, size_t size) -> Status {
    if (size == 0) return {};
    hash.update(data, size);
    return file.write(data, size);
  };
  JIGE_DO(write(header.data(), sizeof header));
  for (const auto* pairs : {&reference.training, &reference.held_out}) {
    JIGE_DO(write(pairs->data(), pairs->size() * sizeof(ReferencePair)));
  }
  const uint64_t checksum = hash.digest();
  JIGE_DO(file.write(&checksum, sizeof checksum));
  return file.commit();
}

Result<ReferenceLogProbs> read_reference(const std::string& path, uint64_t key) {
  JIGE_TRY(const MappedFile map, MappedFile::open(path));
  const auto bytes = map.bytes();
  std::array<uint64_t, kReferenceWords> header{};
  uint64_t checksum = 0;
  if (bytes.size() < sizeof header + sizeof checksum) return not_whole(path);
  const size_t body_bytes = bytes.size() - sizeof header - sizeof checksum;
  std::memcpy(header.data(), bytes.data(), sizeof header);
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof checksum, sizeof checksum);
  const uint64_t pairs_max = body_bytes / sizeof(ReferencePair);
  if (header[0] != kReferenceMagic || header[1] != key || header[2] > pairs_max ||
      header[3] > pairs_max || body_bytes != (header[2] + header[3]) * sizeof(ReferencePair)) {
    return not_whole(path);
  }
  formats::XxHash64 hash;
  hash.update(bytes.data(), bytes.size() - sizeof checksum);
  if (hash.digest() != checksum) return not_whole(path);
  ReferenceLogProbs reference;
  const std::byte* at = bytes.data() + sizeof header;
  for (auto* pairs : {&reference.training, &reference.held_out}) {
    pairs->resize(pairs == &reference.training ? header[2] : header[3]);
    if (!pairs->empty()) std::memcpy(pairs->data(), at, pairs->size() * sizeof(ReferencePair));
    at += pairs->size() * sizeof(ReferencePair);
  }
  return reference;
}

}  // namespace jige::train
