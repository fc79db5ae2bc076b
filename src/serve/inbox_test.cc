#include "serve/inbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace jige::serve {
namespace {

Submission of(RequestId id, size_t prompt_tokens) {
  Submission submission;
  submission.id = id;
  submission.request.prompt.assign(prompt_tokens, 1);
  return submission;
}

Code code_of(const Status& status) {
  EXPECT_FALSE(status);
  return status ? Code::kInternal : status.error().code;
}

TEST(Inbox, HandsOutEverythingOnceAndInOrder) {
  Inbox inbox({.requests_max = 10, .prompt_tokens_max = 100});
  ASSERT_TRUE(inbox.push(of(1, 5), 1));
  ASSERT_TRUE(inbox.push(of(2, 6), 1));
  inbox.cancel(1);
  Inbox::Events events;
  inbox.take(events, Inbox::kForEver);
  ASSERT_EQ(events.arrivals.size(), 2u);
  EXPECT_EQ(events.arrivals[0].id, 1);
  EXPECT_EQ(events.arrivals[1].id, 2);
  EXPECT_EQ(events.cancels, std::vector<RequestId>{1});
  EXPECT_FALSE(events.stop);
  inbox.take(events, Inbox::kNoWait);
  EXPECT_TRUE(events.arrivals.empty());
  EXPECT_TRUE(events.cancels.empty());
}

TEST(Inbox, CountsWaitingRequestsUntilTheyBegin) {
  Inbox inbox({.requests_max = 2, .prompt_tokens_max = 100});
  ASSERT_TRUE(inbox.push(of(1, 5), 1));
  ASSERT_TRUE(inbox.push(of(2, 6), 1));
  EXPECT_EQ(inbox.waiting_prompt_tokens(), 11);
  Inbox::Events events;
  inbox.take(events, Inbox::kNoWait);
  EXPECT_EQ(inbox.waiting_requests(), 2);  // taken, but not begun
  const Status full = inbox.push(of(3, 1), 7);
  EXPECT_EQ(code_of(full), Code::kExhausted);
  EXPECT_NE(full.error().message.find("again in 7 s"), std::string::npos) << full.error().message;
  EXPECT_EQ(code_of(inbox.check(0, 1)), Code::kExhausted);
  inbox.begun(5);
  EXPECT_EQ(inbox.waiting_prompt_tokens(), 6);
  EXPECT_TRUE(inbox.check(0, 1));
  EXPECT_TRUE(inbox.push(of(3, 1), 1));
}

TEST(Inbox, BoundsPromptTokensButTakesALongOneAlone) {
  Inbox inbox({.requests_max = 10, .prompt_tokens_max = 20});
  EXPECT_TRUE(inbox.push(of(1, 50), 1));
  EXPECT_EQ(code_of(inbox.push(of(2, 1), 1)), Code::kExhausted);
  inbox.begun(50);
  EXPECT_TRUE(inbox.push(of(2, 19), 1));
  EXPECT_EQ(code_of(inbox.check(2, 1)), Code::kExhausted);
  EXPECT_TRUE(inbox.push(of(3, 1), 1));
}

TEST(Inbox, TakesNothingAfterItsEnd) {
  Inbox inbox({.requests_max = 10, .prompt_tokens_max = 20});
  ASSERT_TRUE(inbox.push(of(1, 1), 1));
  EXPECT_TRUE(inbox.open());
  inbox.close();
  EXPECT_FALSE(inbox.open());
  EXPECT_EQ(code_of(inbox.push(of(2, 1), 1)), Code::kUnavailable);
  Inbox::Events events;
  inbox.take(events, Inbox::kForEver);
  EXPECT_EQ(events.arrivals.size(), 1u);
  EXPECT_FALSE(events.stop);
  inbox.stop();
  inbox.take(events, Inbox::kForEver);
  EXPECT_TRUE(events.stop);
  inbox.take(events, Inbox::kForEver);  // stays stopped
  EXPECT_TRUE(events.stop);
}

TEST(Inbox, AsksRefusedClientsToWaitForTheQueue) {
  EXPECT_EQ(retry_after(50, 0), 1);  // nothing measured
  EXPECT_EQ(retry_after(50, 10), 5);
  EXPECT_EQ(retry_after(51, 10), 6);
  EXPECT_EQ(retry_after(0, 10), 1);
  EXPECT_EQ(retry_after(1000, 0.1), 120);
}

TEST(Inbox, WakesTheOneWhoWaits) {
  Inbox inbox({.requests_max = 10, .prompt_tokens_max = 20});
  size_t arrivals = 0;
  size_t cancels = 0;
  std::thread taker([&] {
    Inbox::Events events;
    while (!events.stop) {
      inbox.take(events, Inbox::kForEver);
      arrivals += events.arrivals.size();
      cancels += events.cancels.size();
    }
  });
  EXPECT_TRUE(inbox.push(of(1, 1), 1));
  inbox.cancel(1);
  inbox.stop();
  taker.join();
  EXPECT_EQ(arrivals, 1u);
  EXPECT_EQ(cancels, 1u);
}

TEST(Inbox, WhilePausedNothingIsTakenAndItSaysWhy) {
  Inbox inbox({.requests_max = 2, .prompt_tokens_max = 100});
  inbox.pause("layers are lost");
  const Status refused = inbox.push({.id = 1, .request = {.prompt = {1}}}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_EQ(refused.error().message, "layers are lost");
  EXPECT_TRUE(inbox.open());
  Inbox::Events events;
  inbox.take(events, std::chrono::milliseconds(1));
  EXPECT_TRUE(events.arrivals.empty());
  inbox.go_on();
  EXPECT_TRUE(inbox.push({.id = 1, .request = {.prompt = {1}}}, 1));
  inbox.take(events, std::chrono::seconds(20));
  EXPECT_EQ(events.arrivals.size(), 1u);
}

}  // namespace
}  // namespace jige::serve
