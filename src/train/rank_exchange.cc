#include "train/rank_exchange.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "formats/xxhash64.h"

namespace jige::train {
namespace {

// `own` of every rank, by rank.
Result<std::vector<int64_t>> gather(comm::AsyncGroup& group, std::span<const int64_t> own) {
  std::vector<int64_t> all(own.size() * static_cast<size_t>(group.size()));
  JIGE_DO(group
              .start({.collective = comm::Collective::kAllGather,
                      .dtype = DType::kI64,
                      .count = static_cast<int64_t>(own.size()),
                      .src = reinterpret_cast<const std::byte*>(own.data()),
                      .dst = reinterpret_cast<std::byte*>(all.data())})
              .wait());
  return all;
}

}  // namespace

Status after_rank_0(comm::AsyncGroup& group, const std::function<Status()>& work) {
  Status done;
  if (group.rank() == 0) done = work();
  if (!done) {
    group.fail_with(done.error());
    return done;
  }
  uint8_t word = 0;
  JIGE_DO(broadcast_bytes(group, 0, std::as_writable_bytes(std::span(&word, 1))));
  if (group.rank() != 0) done = work();
  if (!done) group.fail_with(done.error());
  return done;
}

Status check_same(comm::AsyncGroup& group, std::string_view text, std::string_view what) {
  formats::XxHash64 hash;
  hash.update(text.data(), text.size());
  const int64_t own = std::bit_cast<int64_t>(hash.digest());
  JIGE_TRY(const std::vector<int64_t> all, gather(group, std::span(&own, 1)));
  std::vector<std::string> others;
  for (int r = 1; r < group.size(); ++r) {
    if (all[static_cast<size_t>(r)] != all[0]) others.push_back(group.name(r));
  }
  if (others.empty()) return {};
  return fail(Code::kInvalidArgument, "{} differ on {} from rank 0; give all ranks the same", what,
              fmt::join(others, ", "));
}

Status broadcast_bytes(comm::AsyncGroup& group, int root, std::span<std::byte> bytes) {
  return group
      .start({.collective = comm::Collective::kBroadcast,
              .dtype = DType::kU8,
              .count = static_cast<int64_t>(bytes.size()),
              .root = root,
              .src = bytes.data(),
              .dst = bytes.data()})
      .wait();
}

Result<StepWord> exchange(comm::AsyncGroup& group, const StepWord& own) {
  const std::array<uint64_t, 3> loss = own.loss.words();
  const int64_t flags = (own.stop ? 1 : 0) + (own.save ? 2 : 0);
  const std::array<int64_t, 5> words = {
      std::bit_cast<int64_t>(loss[0]), std::bit_cast<int64_t>(loss[1]),
      std::bit_cast<int64_t>(loss[2]), flags, std::bit_cast<int64_t>(own.wait_s)};
  JIGE_TRY(const std::vector<int64_t> all, gather(group, words));
  StepWord sum;
  for (size_t at = 0; at < all.size(); at += words.size()) {
    sum.loss.merge(ExactSum::from_words({std::bit_cast<uint64_t>(all[at]),
                                         std::bit_cast<uint64_t>(all[at + 1]),
                                         std::bit_cast<uint64_t>(all[at + 2])}));
    sum.stop = sum.stop || (all[at + 3] & 1) != 0;
    sum.save = sum.save || (all[at + 3] & 2) != 0;
    sum.wait_s = std::max(sum.wait_s, std::bit_cast<double>(all[at + 4]));
  }
  return sum;
}

}  // namespace jige::train
