#include "comm/ring_plan_file.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "comm/test_support.h"

namespace jige::comm {
namespace {

using ::testing::HasSubstr;

Json plan_of_three() {
  return *parse_json(R"({"format":"jige.ring-plan","version":1,"devices":["a","b","c","d","e"],
    "rings":[{"order":[0,2,4,1,3],"weight":0.5,"transfers":[]},
             {"order":[0,3,1,4,2],"weight":0.375},
             {"order":[0,1,2,3,4],"weight":0.125}], "bound": 3})",
                     "plan");
}

TEST(RingPlanFile, GivesRingsAndWeights) {
  const auto plan = ring_plan_from_json(plan_of_three(), 5, "ring.json");
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->rings.size(), 3u);
  EXPECT_EQ(plan->rings[1].order, (std::vector<int>{0, 3, 1, 4, 2}));
  EXPECT_EQ(plan->rings[2].weight, 0.125);
}

TEST(RingPlanFile, GivesTreesByRank) {
  Json json = plan_of_three();
  json["trees"] = *parse_json(
      R"({"order":[4,2,0,1,3],"parents":[[1,3,1,-1,3],[3,-1,0,1,0]],"rate":1.5})", "trees");
  const auto plan = ring_plan_from_json(json, 5, "ring.json");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->trees->parent[0], (std::vector<int>{2, -1, 1, 1, 2}));
  EXPECT_EQ(plan->trees->parent[1], (std::vector<int>{4, 2, -1, 4, 1}));
  EXPECT_EQ(plan->trees->bytes_max, kTreesUnmeasured);
  EXPECT_FALSE(plan->takes_trees(Collective::kAllReduce, 8));
  json["trees"]["bytes_max"] = 64;
  const auto sized = ring_plan_from_json(json, 5, "ring.json");
  EXPECT_TRUE(sized->takes_trees(Collective::kAllReduce, 64));
  EXPECT_FALSE(sized->takes_trees(Collective::kAllReduce, 65));
  EXPECT_FALSE(sized->takes_trees(Collective::kReduceScatter, 8));
  EXPECT_NE(sized->hash(), plan->hash());
}

TEST(RingPlanFile, RefusesWhatCannotRun) {
  const auto broken = [&](const char* pointer, const Json& value, int size = 5) {
    Json copy = plan_of_three();
    copy[Json::json_pointer(pointer)] = value;
    const auto plan = ring_plan_from_json(copy, size, "ring.json");
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_THAT(broken("/format", "x"), HasSubstr("ring.json: is \"x\""));
  EXPECT_THAT(broken("/version", 2), HasSubstr("version 2"));
  EXPECT_THAT(broken("/devices", 3), HasSubstr("no list \"devices\""));
  EXPECT_THAT(broken("/rings", Json::array()), HasSubstr("0 rings"));
  EXPECT_THAT(broken("/rings/0", 3), HasSubstr("must be objects with"));
  EXPECT_THAT(broken("/rings/0/order/0", "a"), HasSubstr("must hold ranks"));
  EXPECT_THAT(broken("/rings/0/order/0", 2), HasSubstr("does not name each rank"));
  EXPECT_THAT(broken("/rings/0/order/0", int64_t{1} << 40), HasSubstr("must hold ranks"));
  EXPECT_THAT(broken("/rings/1/weight", -1), HasSubstr("weight -1"));
  EXPECT_THAT(broken("/rings/1/weight", "half"), HasSubstr("weight"));
  const auto rounds = [](const char* text) { return *parse_json(text, "rounds"); };
  EXPECT_THAT(broken("/rounds", 3), HasSubstr("no list \"rounds\""));
  EXPECT_THAT(broken("/rounds", rounds("[[1,2,3,4,0]]")), HasSubstr("must be objects with"));
  EXPECT_THAT(broken("/rounds", rounds(R"([{"to":[1,2,3,4,0]}])")), HasSubstr("4 are due"));
  EXPECT_THAT(broken("/rounds", rounds(R"([{"to":[1,2,3,4,4]}])")), HasSubstr("each rank"));
  EXPECT_THAT(broken("/rounds", rounds(R"([{"to":[0,2,3,4,1]}])")), HasSubstr("to 0 itself"));
  EXPECT_THAT(broken("/rounds", rounds(R"([{"to":[1,2,3,4,0]},{"to":[1,0,4,2,3]}])")),
              HasSubstr("rank 0 send to 1 twice"));
  const char* pair = R"({"order":[4,2,0,1,3],
    "parents":[[1,3,1,-1,3],[3,-1,0,1,0]],"bytes_max":5000})";
  const auto trees = [&](const char* field, const Json& value) {
    Json made = *parse_json(pair, "trees");
    made[Json::json_pointer(field)] = value;
    return broken("/trees", made);
  };
  EXPECT_EQ(trees("/bytes_max", 0), "accepted");
  EXPECT_THAT(broken("/trees", 3), HasSubstr("must be objects with"));
  EXPECT_THAT(trees("/order/0", 2), HasSubstr("trees 2,2,0,1,3 does not name each rank"));
  EXPECT_THAT(trees("/parents", 2), HasSubstr("no list \"parents\""));
  EXPECT_THAT(trees("/parents", Json::array()), HasSubstr("two trees"));
  EXPECT_THAT(trees("/parents/0", Json::array()), HasSubstr("each of 5 places"));
  EXPECT_THAT(trees("/parents/0/0", 5), HasSubstr("names place 5 of 5"));
  EXPECT_THAT(trees("/parents/0/0", -2), HasSubstr("must hold ranks"));
  EXPECT_THAT(trees("/parents/1/0", 4), HasSubstr("are no tree"));
  EXPECT_THAT(trees("/bytes_max", -3), HasSubstr("up to -3 bytes"));
  EXPECT_THAT(broken("/bound", 3, 4), HasSubstr("planned for 5 devices, these are 4 ranks"));
}

// Whatever such a file says, it is refused, or a plan that all ranks can run.
TEST(RingPlanFile, DamagedFilesAreRefusedOrCanRun) {
  Json json = plan_of_three();
  json["trees"] = *parse_json(
      R"({"order":[4,2,0,1,3],"parents":[[1,3,1,-1,3],[3,-1,0,1,0]],"bytes_max":64})", "trees");
  json["rounds"] = *parse_json(
      R"([{"to":[3,4,0,1,2]},{"to":[1,2,3,4,0]},{"to":[4,0,1,2,3]},{"to":[2,3,4,0,1]}])", "rounds");
  const std::string text = dump_json(json);
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(6000); ++seed) {
    const auto changed = parse_json(Mutator(seed).mutate(text), "ring.json");
    if (!changed || !changed->is_object()) continue;
    const auto plan = ring_plan_from_json(*changed, 5, "ring.json");
    if (!plan) {
      ASSERT_THAT(plan.error().message, HasSubstr("ring.json")) << seed;
      continue;
    }
    ++read;
    ASSERT_TRUE(plan->check(5)) << seed;
    const std::vector<Range> parts = split_by_weight(*plan, 1009, 4);
    int64_t count = 0;
    for (const Range& part : parts) count += part.count;
    ASSERT_EQ(count, 1009) << seed;
  }
  EXPECT_GT(read, 60);
}

// Five ranks, three rings with weights, counts that nothing divides: the bits of the order that
// ring_plan.h fixes, whichever path carries them.
TEST(RingPlanFile, APlannedMixtureRunsWithTheDocumentedBits) {
  RingPlan plan = *ring_plan_from_json(plan_of_three(), 5, "ring.json");
  plan.piece_bytes = 512;
  const auto errors =
      run_ranks(make_transports("threads", 5, plan), plan, {}, [](Communicator& group) -> Status {
        for (const int64_t count : {1, 7, 63, 1009, 20011}) {
          for (const int64_t direct_bytes_max : {int64_t{-1}, int64_t{1} << 30}) {
            group.set_direct_bytes_max(direct_bytes_max);
            std::vector<float> data(static_cast<size_t>(count));
            const auto value = [](int rank, int64_t i) {
              return 1.0F / static_cast<float>(3 + rank * 7 + i % 101);
            };
            for (int64_t i = 0; i < count; ++i) {
              data[static_cast<size_t>(i)] = value(group.rank(), i);
            }
            JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kSum));
            const std::vector<Range> parts = split_by_weight(group.plan(), count, 4);
            for (int64_t i = 0; i < count; ++i) {
              const OracleStart start = all_reduce_start(group.plan(), parts, 4, i);
              float sum = value(start.ring->at(start.position), i);
              for (int k = 1; k < 5; ++k) sum += value(start.ring->at(start.position + k), i);
              if (data[static_cast<size_t>(i)] == sum) continue;
              return fail(Code::kInternal, "element {} of {} differs", i, count);
            }
          }
        }
        return {};
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Rounds whose pairs do not exchange: 0 sends to 1, 1 to 2 and so on, out of order on purpose.
TEST(RingPlanFile, PlannedRoundsCarryAnAllToAll) {
  Json json = plan_of_three();
  json["rounds"] = *parse_json(
      R"([{"to":[3,4,0,1,2]},{"to":[1,2,3,4,0]},{"to":[4,0,1,2,3]},{"to":[2,3,4,0,1]}])", "rounds");
  const auto plan = ring_plan_from_json(json, 5, "ring.json");
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->rounds.size(), 4u);
  EXPECT_NE(plan->hash(), ring_plan_from_json(plan_of_three(), 5, "ring.json")->hash());
  for (const char* kind : {"threads", "tcp"}) {
    const auto errors =
        run_ranks(make_transports(kind, 5, *plan), *plan, {}, [](Communicator& group) -> Status {
          for (const int64_t count : {0, 1, 333}) {
            for (const bool in_place : {false, true}) {
              // What rank r sends to q: r * 100 + q, then the index.
              const auto value = [](int64_t from, int64_t to, int64_t i) {
                return static_cast<int32_t>((from * 100 + to) * 1000 + i);
              };
              std::vector<int32_t> src(static_cast<size_t>(5 * count)), dst(src.size());
              for (int64_t q = 0; q < 5; ++q) {
                for (int64_t i = 0; i < count; ++i) {
                  src[static_cast<size_t>(q * count + i)] = value(group.rank(), q, i);
                }
              }
              int32_t* out = in_place ? src.data() : dst.data();
              JIGE_DO(group.all_to_all(src.data(), out, count, DType::kI32));
              for (int64_t q = 0; q < 5; ++q) {
                for (int64_t i = 0; i < count; ++i) {
                  if (out[q * count + i] == value(q, group.rank(), i)) continue;
                  return fail(Code::kInternal, "block {} of {} is wrong", q, count);
                }
              }
            }
          }
          return {};
        });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << kind;
  }
}

}  // namespace
}  // namespace jige::comm
