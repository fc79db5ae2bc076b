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

void add_words(const ExactSum& sum, std::vector<int64_t>& words) {
  for (const uint64_t word : sum.words()) words.push_back(std::bit_cast<int64_t>(word));
}

ExactSum sum_at(std::span<const int64_t> words) {
  std::array<uint64_t, 3> bits = {};
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = std::bit_cast<uint64_t>(words[i]);
  return ExactSum::from_words(bits);
}

}  // namespace

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

Result<std::vector<std::vector<int64_t>>> gather_uneven(comm::AsyncGroup& group,
                                                        std::span<const int64_t> own) {
  const int64_t own_count = std::ssize(own);
  JIGE_TRY(const std::vector<int64_t> counts, gather(group, std::span(&own_count, 1)));
  const auto most = static_cast<size_t>(std::ranges::max(counts));
  std::vector<int64_t> padded(own.begin(), own.end());
  padded.resize(most);
  JIGE_TRY(const std::vector<int64_t> all, gather(group, padded));
  std::vector<std::vector<int64_t>> said;
  for (size_t r = 0; r < counts.size(); ++r) {
    const auto from = std::span(all).subspan(r * most, static_cast<size_t>(counts[r]));
    said.emplace_back(from.begin(), from.end());
  }
  return said;
}

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
  // Flags, the wait, the two sums of three words each, counts.
  const int64_t flags = (own.stop ? 1 : 0) + (own.save ? 2 : 0);
  std::vector<int64_t> words = {flags, std::bit_cast<int64_t>(own.wait_s)};
  add_words(own.loss, words);
  add_words(own.experts.balance, words);
  const size_t counts_begin = words.size();
  words.insert(words.end(), own.experts.counts.begin(), own.experts.counts.end());
  JIGE_TRY(const std::vector<int64_t> all, gather(group, words));
  StepWord sum;
  sum.experts.expert_count = own.experts.expert_count;
  sum.experts.counts.resize(own.experts.counts.size());
  for (size_t at = 0; at < all.size(); at += words.size()) {
    const auto said = std::span(all).subspan(at, words.size());
    sum.stop = sum.stop || (said[0] & 1) != 0;
    sum.save = sum.save || (said[0] & 2) != 0;
    sum.wait_s = std::max(sum.wait_s, std::bit_cast<double>(said[1]));
    sum.loss.merge(sum_at(said.subspan(2)));
    const auto counts = said.subspan(counts_begin);
    sum.experts.merge({.expert_count = own.experts.expert_count,
                       .counts = std::vector<int64_t>(counts.begin(), counts.end()),
                       .balance = sum_at(said.subspan(5))});
  }
  return sum;
}

}  // namespace jige::train
