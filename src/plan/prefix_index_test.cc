#include "plan/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"

namespace jige::plan {
namespace {

using Chain = std::vector<uint64_t>;

// Beginnings of a tree with few branches, so that chains share some of them.
Chain random_chain(Rng& rng, size_t blocks_max) {
  Chain chain;
  uint64_t hash = 1;
  const size_t blocks = rng.below(blocks_max + 1);
  for (size_t i = 0; i < blocks; ++i) {
    hash = derive_key(hash, "block", rng.below(i % 3 == 0 ? 3 : 1));
    chain.push_back(hash);
  }
  return chain;
}

// The same by the words of the header, in time linear in all that is known.
class PlainIndex {
 public:
  explicit PlainIndex(size_t capacity) : capacity_(capacity) {}

  void touch(const Chain& chain) {
    for (size_t i = std::min(chain.size(), capacity_); i-- > 0;) touched_[chain[i]] = ++now_;
    while (touched_.size() > capacity_) {
      touched_.erase(
          std::ranges::min_element(touched_, {}, [](const auto& entry) { return entry.second; }));
    }
  }
  size_t match(const Chain& chain) const {
    size_t count = 0;
    while (count < chain.size() && touched_.contains(chain[count])) ++count;
    return count;
  }
  size_t size() const { return touched_.size(); }

 private:
  size_t capacity_;
  uint64_t now_ = 0;
  std::map<uint64_t, uint64_t> touched_;
};

TEST(PrefixIndex, KnowsWhatAPlainOneKnows) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(derive_key(seed, "prefix index"));
    const size_t capacity = 1 + rng.below(40);
    PrefixIndex index(capacity);
    PlainIndex plain(capacity);
    std::vector<Chain> seen;
    for (int step = 0; step < 60; ++step) {
      const Chain chain = random_chain(rng, 25);
      ASSERT_EQ(index.match(chain), plain.match(chain)) << "seed " << seed << ", step " << step;
      index.touch(chain);
      plain.touch(chain);
      seen.push_back(chain);
      ASSERT_EQ(index.size(), plain.size());
      ASSERT_LE(index.size(), capacity);
      ASSERT_EQ(index.match(chain), std::min(chain.size(), capacity));
      for (const Chain& one : seen) {
        // Behind the first block that is unknown all are: what bisection rests on.
        const size_t count = index.match(one);
        for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(index.contains(one[i]), i < count);
      }
    }
  }
}

TEST(PrefixIndex, ForgetsAllAtOnce) {
  PrefixIndex index(8);
  index.touch(Chain{1, 2, 3});
  EXPECT_EQ(index.match(Chain{1, 2, 9}), 2U);
  index.clear();
  EXPECT_EQ(index.size(), 0U);
  EXPECT_EQ(index.match(Chain{1, 2, 3}), 0U);
}

}  // namespace
}  // namespace jige::plan
