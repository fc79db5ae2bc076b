// What ranks tell one another, with links that are slow at random.

#include "train/rank_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "comm/test_support.h"

namespace jige::train {
namespace {

using ::testing::Each;

// A rank's words of a round: none, a few or many.
std::vector<int64_t> words_of(int rank, uint64_t round) {
  Rng rng(derive_key(round, "words", static_cast<uint64_t>(rank)));
  std::vector<int64_t> words(rng.below(4) == 0 ? 0 : rng.below(3000));
  for (int64_t& word : words) word = static_cast<int64_t>(rng.next_u64());
  return words;
}

TEST(RankExchange, GathersWhateverManyWordsEachRankHas) {
  for (const int size : {1, 2, 3, 5}) {
    const comm::RingPlan plan = comm::RingPlan::in_rank_order(size);
    comm::Transports transports = comm::make_transports("threads", size, plan);
    for (auto& transport : transports) {
      transport = std::make_unique<comm::DelayedTransport>(std::move(transport), 11);
    }
    const auto errors = comm::run_ranks(
        std::move(transports), plan, {.timeout_s = 20}, [&](comm::Communicator& ranks) -> Status {
          const auto group = comm::AsyncGroup::over(std::move(ranks));
          for (uint64_t round = 0; round < 8; ++round) {
            JIGE_TRY(const auto all, gather_uneven(*group, words_of(group->rank(), round)));
            for (int r = 0; r < size; ++r) {
              if (all[static_cast<size_t>(r)] == words_of(r, round)) continue;
              return fail(Code::kInternal, "round {}, rank {}", round, r);
            }
          }
          return {};
        });
    EXPECT_THAT(errors, Each("")) << size;
  }
}

}  // namespace
}  // namespace jige::train
