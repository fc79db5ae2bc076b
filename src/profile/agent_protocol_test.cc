#include "profile/agent_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::profile {
namespace {

using ::testing::HasSubstr;

std::string payload_of(const AgentMessage& message) {
  return frame_of(message).substr(kFrameHeadBytes);
}

// One of each kind, every field away from its default.
std::vector<AgentMessage> samples() {
  return {HelloMessage{.version = 2, .role = AgentRole::kData, .token = "secret"},
          WelcomeMessage{.version = 3, .kernel = "6.1", .congestion = {"reno", "bbr"}},
          ClockMessage{-5},
          OpenMessage{3, "10.0.0.2", 7431, "bbr", 5000},
          OpenedMessage{3},
          RunMessage{{3, 1}, {4096, 1000}, 123456789012345, 1000},
          RanMessage{{{1, 2}, {3, 4}}, {5, 6}},
          RanMessage{{{1, 2}}, {7, 7}},
          RanMessage{{{1, 2}}, {}},
          ListenMessage{"10.0.0.1"},
          ListeningMessage{40001},
          CollectMessage{1,
                         {{{0, 2, 1}, 0.75}, {{0, 1, 2}, 0.25}},
                         {},
                         {},
                         "10.0.0.1",
                         40001,
                         "10.0.0.2",
                         "bbr",
                         4096,
                         3,
                         1000},
          CollectMessage{.rank = 1,
                         .rings = {{{0, 2, 1}, 1}},
                         .trees = {2, 0, 1},
                         .rounds = {{1, 2, 0}, {2, 0, 1}},
                         .address = "10.0.0.1",
                         .port = 40001,
                         .bytes = 4096,
                         .timeout_ms = 1000},
          CollectedMessage{{5, 6}},
          RanksMessage{"Open MPI", {"n1", "n2"}, {"6.1", "6.2"}, {7, 8}},
          DataMessage{77, true},
          GotMessage{},
          ErrorMessage{Code::kCorrupt, "what"}};
}

TEST(AgentProtocol, EveryMessageComesBackAsItWas) {
  for (const AgentMessage& message : samples()) {
    const std::string frame = frame_of(message);
    const auto head = std::as_bytes(std::span(frame)).first<kFrameHeadBytes>();
    EXPECT_EQ(payload_size(head).value(), frame.size() - kFrameHeadBytes);
    const auto back = parse_message(payload_of(message));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(frame_of(*back), frame);
  }
}

TEST(AgentProtocol, WhatIsNoFrameIsRefused) {
  const auto size_of = [](std::string_view head) {
    return payload_size(std::as_bytes(std::span(head)).first<kFrameHeadBytes>());
  };
  EXPECT_EQ(size_of("GET / HT").error().code, Code::kCorrupt);
  EXPECT_EQ(size_of(std::string_view("JGL1\xff\xff\xff\xff", 8)).error().code, Code::kExhausted);
  EXPECT_EQ(size_of(std::string_view("JGL1\x01\x00\x01\x00", 8)).error().code, Code::kExhausted);
  EXPECT_EQ(size_of(std::string_view("JGL1\x00\x00\x01\x00", 8)).value(), kFramePayloadMax);
}

TEST(AgentProtocol, FieldsOutOfTheirLimitsAreNamed) {
  const auto error = [](std::string_view payload) {
    const auto message = parse_message(payload);
    return message ? std::string("accepted") : message.error().message;
  };
  EXPECT_THAT(error(R"({"type":"run","flows":[1,1],"bytes":[1,1],"start_ns":0,"timeout_ms":1})"),
              HasSubstr("each once"));
  EXPECT_THAT(error(R"({"type":"run","flows":[-1],"bytes":[1],"start_ns":0,"timeout_ms":1})"),
              HasSubstr("numbers up to 4095"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,2]}],"rank":0})"),
              HasSubstr("every rank once"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,1]}],"trees":[0],"rank":0})"),
              HasSubstr("\"trees\" must hold every rank once"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,1]}],"trees":[0,2],"rank":0})"),
              HasSubstr("up to 1, each once"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,1]}],"rounds":[3],"rank":0})"),
              HasSubstr("\"rounds\" must hold every rank once"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,1]}],"rank":2})"),
              HasSubstr("\"rank\" is 2"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,1],"weight":0}],"rank":1})"),
              HasSubstr("above 0"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[{"order":[0,1]},{"order":[0]}],"rank":0})"),
              HasSubstr("of the same ranks"));
  EXPECT_THAT(error(R"({"type":"collect","rings":[],"rank":0})"), HasSubstr("1 to 16 rings"));
  EXPECT_THAT(error(R"({"type":"run","flows":[1],"bytes":[0],"start_ns":0,"timeout_ms":1})"),
              HasSubstr("\"bytes\" must hold"));
  EXPECT_THAT(error(R"({"type":"run","flows":[1],"bytes":[],"start_ns":0,"timeout_ms":1})"),
              HasSubstr("0 sizes for 1 flows"));
  EXPECT_THAT(error(R"({"type":"data","bytes":99999999999999})"), HasSubstr("must be 1 to"));
  EXPECT_THAT(error(R"({"type":"open","flow":1,"address":"a","port":0,"timeout_ms":1})"),
              HasSubstr("\"port\" is 0"));
  EXPECT_THAT(error(R"({"type":"hello","version":1,"role":"king"})"), HasSubstr("role"));
  EXPECT_THAT(error(R"({"type":"clock","now_ns":-9223372036854775808})"), HasSubstr("now_ns"));
  EXPECT_THAT(error(R"({"type":"ran","times":[[0,9223372036854775807]]})"), HasSubstr("times"));
  EXPECT_THAT(error(R"({"type":"ran","times":[[-9223372036854775808,1]]})"), HasSubstr("times"));
  for (const char* ticks : {"7", "[1]", "[1,2,3]", "[2,1]", "[-1,1]", "[0,9223372036854775807]"}) {
    EXPECT_THAT(error(fmt::format(R"({{"type":"ran","times":[],"processors":{}}})", ticks)),
                HasSubstr("processors"));
  }
  EXPECT_THAT(error(R"({"type":"run","flows":[1],"bytes":[1],"start_ns":9223372036854775807,)"
                    R"("timeout_ms":1})"),
              HasSubstr("start_ns"));
  EXPECT_THAT(error(R"({"type":"dance"})"), HasSubstr("unknown type"));
  EXPECT_THAT(error(R"([1])"), HasSubstr("must be an object"));
  EXPECT_THAT(error("{"), HasSubstr("agent message"));
}

TEST(AgentProtocol, MutatedMessagesAreParsedOrRefusedNeverMore) {
  Rng rng(derive_key(11, "agent messages"));
  int parsed = 0, refused = 0;
  for (uint64_t round = 0; round < fuzz_rounds(4000); ++round) {
    const auto all = samples();
    std::string payload = payload_of(all[rng.below(all.size())]);
    for (uint64_t edits = rng.below(4) + 1; edits-- > 0 && !payload.empty();) {
      const size_t at = rng.below(payload.size());
      switch (rng.below(4)) {
        case 0:
          payload[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          payload.erase(at, rng.below(8) + 1);
          break;
        case 2:
          payload.insert(at, std::to_string(rng.next_u64()));
          break;
        default:
          payload.insert(at, payload.substr(rng.below(payload.size()), 9));
          break;
      }
    }
    const auto message = parse_message(payload);
    ++(message ? parsed : refused);
    if (!message) continue;
    // What was taken is within the limits: it can be said and taken again.
    ASSERT_TRUE(parse_message(payload_of(*message))) << payload;
  }
  EXPECT_GT(parsed, 100);
  EXPECT_GT(refused, 1000);
}

TEST(AgentProtocol, TokensAreComparedWhole) {
  EXPECT_TRUE(same_token("", ""));
  EXPECT_TRUE(same_token("lab", "lab"));
  for (const std::string_view other : {"", "la", "labb", "lax", "lablab"}) {
    EXPECT_FALSE(same_token("lab", other)) << other;
    EXPECT_FALSE(same_token(other, "lab")) << other;
  }
}

}  // namespace
}  // namespace jige::profile
