// The servers of a router, where names lead elsewhere, are not found, or hang while they are looked
// up.
#include "cli/route_servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/test_path.h"

namespace jige::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What finds names, as a test plays it: 0 for one that is not found, kHangs for one whose look-up
// takes until that is changed, else the last number of its address.
class PlayedNames {
 public:
  static constexpr int kHangs = -1;

  ~PlayedNames() {
    set_all(0);  // who hangs goes
  }
  void set(const std::string& url, int number) {
    const std::lock_guard lock(state_->mutex);
    state_->numbers[url] = number;
    state_->changed.notify_all();
  }
  void set_all(int number) {
    const std::lock_guard lock(state_->mutex);
    for (auto& [url, one] : state_->numbers) one = number;
    state_->changed.notify_all();
  }
  HostLookups::LookUp look_up() const {
    return [state = state_](std::string_view url) { return find(*state, std::string(url)); };
  }
  std::vector<std::string> asked() const {
    const std::lock_guard lock(state_->mutex);
    return state_->asked;
  }
  int at_once_max() const {
    const std::lock_guard lock(state_->mutex);
    return state_->at_once_max;
  }

 private:
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::map<std::string, int> numbers;
    std::vector<std::string> asked;
    int at_once = 0, at_once_max = 0;
  };
  static Result<api::HostAddress> find(State& state, const std::string& url) {
    std::unique_lock lock(state.mutex);
    state.asked.push_back(url);
    state.at_once_max = std::max(++state.at_once, state.at_once_max);
    state.changed.wait(lock, [&] { return state.numbers[url] != kHangs; });
    --state.at_once;
    const int number = state.numbers[url];
    if (number == 0) return fail(Code::kUnavailable, "{}: the host cannot be found", url);
    return api::HttpPeer::read("http://10.0.0." + std::to_string(number) + ":80")->address;
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// "http://a:80=7", by the last number of its address.
std::vector<std::string> shown(const std::vector<api::HttpPeer>& peers) {
  std::vector<std::string> texts;
  for (const api::HttpPeer& peer : peers) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer.address.socket);
    texts.push_back(peer.url() + "=" + std::to_string(ntohl(address.sin_addr.s_addr) & 0xFF) +
                    (peer.api_key.empty() ? "" : " by " + peer.api_key));
  }
  return texts;
}

class RouteServersTest : public ::testing::Test {
 protected:
  void write_list(const std::string& text) { ASSERT_TRUE(write_file_atomic(file_, text)) << file_; }
  RouteServers& make(double patience_s = 5) {
    RouteServersOptions options{.file = file_, .patience_s = patience_s};
    options.look_up = names_.look_up();
    options.key_file = key_file_;
    return servers_.emplace(std::move(options));
  }
  std::vector<std::string> first(double patience_s = 5) {
    const auto peers = make(patience_s).first([] { return false; });
    EXPECT_TRUE(peers) << peers.error().message;
    return peers ? shown(*peers) : std::vector<std::string>();
  }
  // What is new at a time, within as long as look-ups take here.
  std::vector<std::string> changed(double now_s) {
    for (int i = 0; i < 1000; ++i) {
      if (const auto peers = servers_->changed(now_s)) return shown(*peers);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return {"nothing"};
  }
  // Whether there is nothing new, for a while.
  bool stays(double now_s) {
    for (int i = 0; i < 20; ++i) {
      if (servers_->changed(now_s)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  void wait_for_asked(const std::string& url, ptrdiff_t count) {
    for (int i = 0; i < 1000; ++i) {
      if (std::ranges::count(names_.asked(), url) >= count) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << url << " is not looked up";
  }

  const std::string file_ = test_path("servers.txt");
  std::string key_file_;
  PlayedNames names_;  // before those who ask it
  std::optional<RouteServers> servers_;
};

TEST_F(RouteServersTest, NeedNoLookUpWhereTheyAreAddresses) {
  write_list("http://10.0.0.1:80\nhttps://10.0.0.2");
  EXPECT_THAT(first(), ElementsAre("http://10.0.0.1:80=1", "https://10.0.0.2:443=2"));
  write_list("http://10.0.0.3:80");
  EXPECT_THAT(changed(1), ElementsAre("http://10.0.0.3:80=3"));
  EXPECT_TRUE(stays(1.5));
  EXPECT_TRUE(stays(40)) << "nothing to look up again";
  EXPECT_THAT(names_.asked(), ElementsAre());
}

TEST_F(RouteServersTest, FollowTheirNames) {
  write_list("http://a\nhttp://10.0.0.9\nhttp://b");
  names_.set("http://a:80", 1);
  names_.set("http://b:80", 2);
  EXPECT_THAT(first(), ElementsAre("http://a:80=1", "http://10.0.0.9:80=9", "http://b:80=2"));
  EXPECT_TRUE(stays(29)) << "not yet";
  names_.set("http://b:80", 3);
  EXPECT_THAT(changed(30.5), ElementsAre("http://a:80=1", "http://10.0.0.9:80=9", "http://b:80=3"));
  EXPECT_TRUE(stays(59));
  // Told again: a server that was well has not followed.
  EXPECT_THAT(changed(61), ElementsAre("http://a:80=1", "http://10.0.0.9:80=9", "http://b:80=3"));
}

TEST_F(RouteServersTest, StayWhereTheyWereWhileTheyAreNotFound) {
  write_list("http://a\nhttp://b");
  names_.set("http://a:80", 1);
  names_.set("http://b:80", 2);
  first();
  ::testing::internal::CaptureStderr();
  names_.set("http://a:80", 0);
  names_.set("http://b:80", 4);
  EXPECT_THAT(changed(31), ElementsAre("http://a:80=1", "http://b:80=4"));
  EXPECT_THAT(changed(62), ElementsAre("http://a:80=1", "http://b:80=4"));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("http://a:80: the host cannot be found; it is asked where it was"));
  EXPECT_EQ(told.find("cannot be found"), told.rfind("cannot be found")) << "once";
  names_.set("http://a:80", 5);
  EXPECT_THAT(changed(93), ElementsAre("http://a:80=5", "http://b:80=4"));
}

TEST_F(RouteServersTest, AreNotUsedAtFirstWhereOneIsNotFound) {
  write_list("http://10.0.0.1\n\nhttp://a");
  names_.set("http://a:80", 0);
  const auto none = make().first([] { return false; });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  EXPECT_EQ(none.error().message, file_ + ":3: http://a:80: the host cannot be found");
}

TEST_F(RouteServersTest, StayAsTheyWereWhereANewOneIsNotFound) {
  write_list("http://10.0.0.1");
  first();
  ::testing::internal::CaptureStderr();
  names_.set("http://half.of.a.na:80", 0);
  write_list("http://10.0.0.2\nhttp://half.of.a.na");
  EXPECT_TRUE(stays(1));
  EXPECT_TRUE(stays(1.9));
  EXPECT_EQ(names_.asked().size(), 1U);
  EXPECT_TRUE(stays(2));
  wait_for_asked("http://half.of.a.na:80", 2);  // it may be there by now
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr(file_ + ":2: http://half.of.a.na:80: the host cannot be found; "
                                      "servers and keys stay as they were"));
  EXPECT_EQ(told.find("cannot be found"), told.rfind("cannot be found")) << "once";
  names_.set("http://half.of.a.na:80", 3);
  EXPECT_THAT(changed(3), ElementsAre("http://10.0.0.2:80=2", "http://half.of.a.na:80=3"));
}

// The old look-up hangs, and the list changes in the meantime.
TEST_F(RouteServersTest, AreReadAgainWhileALookUpHangs) {
  write_list("http://a\nhttp://10.0.0.9");
  names_.set("http://a:80", 1);
  first();
  names_.set("http://a:80", PlayedNames::kHangs);
  EXPECT_TRUE(stays(31));
  wait_for_asked("http://a:80", 2);
  write_list("http://10.0.0.8\nhttp://a");
  EXPECT_THAT(changed(32), ElementsAre("http://10.0.0.8:80=8", "http://a:80=1"));
  write_list("http://10.0.0.8");
  EXPECT_THAT(changed(33), ElementsAre("http://10.0.0.8:80=8"));
  // One look-up of a name at a time, however long it takes.
  for (double now_s = 34; now_s < 400; now_s += 10) EXPECT_FALSE(servers_->changed(now_s));
  EXPECT_EQ(names_.asked().size(), 2U);
  // A new name does not wait for it.
  names_.set("http://b:80", 2);
  write_list("http://10.0.0.7\nhttp://b");
  EXPECT_THAT(changed(400), ElementsAre("http://10.0.0.7:80=7", "http://b:80=2"));
  EXPECT_EQ(names_.at_once_max(), 2);
}

// As many hang as may be looked up at once: a new name waits for one of them, and the others do not
// wait for that.
TEST_F(RouteServersTest, AreLookedUpAFewAtATime) {
  std::string list = "http://10.0.0.9\n";
  for (size_t i = 0; i < HostLookups::kAtOnce; ++i) {
    names_.set("http://h" + std::to_string(i) + ":80", PlayedNames::kHangs);
    list += "http://h" + std::to_string(i) + "\n";
  }
  write_list(list);
  EXPECT_THAT(first(0.05), ElementsAre("http://10.0.0.9:80=9"));
  names_.set("http://b:80", 2);
  write_list("http://10.0.0.7\nhttp://b");
  EXPECT_TRUE(stays(400));
  EXPECT_TRUE(stays(400.04));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(changed(400.1), ElementsAre("http://10.0.0.7:80=7"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(file_ + ":2: http://b:80: the host is still being looked up; it gets "
                                "nothing until then"));
  EXPECT_TRUE(stays(440)) << "nor does it lose its place when all are looked up again";
  names_.set("http://h3:80", 0);
  EXPECT_THAT(changed(440.04), ElementsAre("http://10.0.0.7:80=7", "http://b:80=2"));
  EXPECT_EQ(names_.at_once_max(), static_cast<int>(HostLookups::kAtOnce));
}

// While one hangs for ever, the others are looked up again and followed.
TEST_F(RouteServersTest, FollowTheirNamesWhileALookUpHangs) {
  write_list("http://a\nhttp://b");
  names_.set("http://a:80", 1);
  names_.set("http://b:80", 2);
  first();
  names_.set("http://a:80", PlayedNames::kHangs);
  names_.set("http://b:80", 3);
  EXPECT_TRUE(stays(31));
  EXPECT_TRUE(stays(35.9)) << "it may be slow alone";
  EXPECT_THAT(changed(36.1), ElementsAre("http://a:80=1", "http://b:80=3"));
  names_.set("http://b:80", 4);
  EXPECT_TRUE(stays(61));
  EXPECT_THAT(changed(66.1), ElementsAre("http://a:80=1", "http://b:80=4"));
  EXPECT_EQ(std::ranges::count(names_.asked(), "http://a:80"), 2);
}

TEST_F(RouteServersTest, BeginWithoutOneWhoseLookUpHangs) {
  write_list("http://a\nhttp://10.0.0.9");
  names_.set("http://a:80", PlayedNames::kHangs);
  EXPECT_THAT(first(0.05), ElementsAre("http://10.0.0.9:80=9"));
  EXPECT_TRUE(stays(0.1));
  ::testing::internal::CaptureStderr();
  names_.set("http://a:80", 0);
  std::string told;
  for (int i = 0; i < 100 && told.empty(); ++i) {
    EXPECT_TRUE(stays(1));
    told = ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("http://a:80: the host cannot be found; it gets nothing until then"));
  names_.set("http://a:80", 1);
  EXPECT_THAT(changed(31), ElementsAre("http://a:80=1", "http://10.0.0.9:80=9"));
}

TEST_F(RouteServersTest, CanBeGivenUpAtTheBeginning) {
  write_list("http://a");
  names_.set("http://a:80", PlayedNames::kHangs);
  const auto begin = std::chrono::steady_clock::now();
  const auto none = make(0.01).first(
      [&] { return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(50); });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kCancelled);
  servers_.reset();  // and does not wait either
}

TEST_F(RouteServersTest, HaveTheKeysOfTheFile) {
  key_file_ = test_path("keys.txt");
  ASSERT_TRUE(write_file_atomic(key_file_, "http://10.0.0.1 first\n"));
  write_list("http://10.0.0.1\nhttp://10.0.0.2");
  EXPECT_THAT(first(), ElementsAre("http://10.0.0.1:80=1 by first", "http://10.0.0.2:80=2"));
  ASSERT_TRUE(write_file_atomic(key_file_, "rest\nhttp://10.0.0.3 third"));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(changed(1),
              ElementsAre("http://10.0.0.1:80=1 by rest", "http://10.0.0.2:80=2 by rest"));
  ASSERT_TRUE(write_file_atomic(key_file_, "two keys"));
  EXPECT_TRUE(stays(2));
  ASSERT_TRUE(write_file_atomic(key_file_, "http://10.0.0.3 other"));
  EXPECT_THAT(changed(3), ElementsAre("http://10.0.0.1:80=1", "http://10.0.0.2:80=2"));
  const std::string told = ::testing::internal::GetCapturedStderr();
  const std::string unused = "has a key for http://10.0.0.3:80, which is none of the servers";
  EXPECT_THAT(told, HasSubstr(unused));
  EXPECT_EQ(told.find(unused), told.rfind(unused)) << "once";
  EXPECT_THAT(told, HasSubstr("such as http://10.0.0.5:8000 and a key; servers and keys stay as"));
  for (const char* secret : {"first", "rest", "third", "two keys", "other"}) {
    EXPECT_THAT(told, Not(HasSubstr(secret)));
  }
}

}  // namespace
}  // namespace jige::cli
