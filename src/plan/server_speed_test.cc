#include "plan/server_speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "base/rng.h"

namespace jige::plan {
namespace {

// Samples of servers that are played one after the other must not grow old meanwhile.
constexpr SpeedOptions kPatient{.old_s = 1e9};

// Servers whose tokens take a given time each by how many answers they make at once, on a virtual
// clock; requests come to each so that a given number is under way there.
class PlayedServers {
 public:
  struct Server {
    double speed = 1;
    int64_t at_once = 1;        // changes by one up and down
    double prompt_rate = 1000;  // tokens a second at speed 1
  };
  explicit PlayedServers(std::vector<Server> servers, double crowding = 0)
      : servers_(std::move(servers)), crowding_(crowding) {}

  // Odd things that happen to a request: `stall_s` more somewhere, and a share of its prompt that
  // is known there to everybody's surprise.
  struct Oddity {
    double stall_s = 0;
    double hit_share = 0;
  };
  std::function<Oddity(uint64_t number)> oddity = [](uint64_t) { return Oddity{}; };

  // So many answers of each, one after the other on each of its places.
  void play(ServerSpeeds& speeds, int answers) {
    double last_s = 0;
    for (size_t at = 0; at < servers_.size(); ++at) {
      last_s = std::max(last_s, play_server(speeds, at, answers));
    }
    end_s_ = last_s + 1;
    speeds.update(end_s_);
  }
  // Rounds take so much more or less than they should, by chance.
  void set_noise(double noise, uint64_t seed) {
    noise_ = noise;
    rng_ = Rng(derive_key(seed, "noise"));
  }
  void set_speeds(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) servers_[i].speed = values[i];
  }
  double end_s() const { return end_s_; }

 private:
  // Tokens of all places in step, as a batch makes them.
  double play_server(ServerSpeeds& speeds, size_t at, int answers) {
    const auto id = static_cast<RouteServerId>(at);
    const Server& server = servers_[at];
    double now_s = end_s_;
    for (int round = 0; round < answers; ++round) {
      const int64_t count = server.at_once + (server.at_once > 1 ? round % 3 - 1 : 0);
      std::vector<RouteId> ids;
      double unread = 0;
      for (int64_t i = 0; i < count; ++i) {
        ids.push_back(++next_);
        speeds.asked(next_, id, now_s,
                     {.prompt_tokens = 500, .unread_tokens = static_cast<int64_t>(unread)});
        unread += 500;
      }
      double read_s = 0;
      for (const RouteId one : ids) {
        const Oddity odd = oddity(static_cast<uint64_t>(one));
        read_s += 500 * (1 - odd.hit_share) / (server.prompt_rate * server.speed) + odd.stall_s;
        speeds.progress(one, now_s + read_s, 2);
      }
      now_s += read_s;
      const double luck = std::exp(noise_ * (2 * rng_.uniform() - 1));
      const double token_s =
          luck * 0.02 * (1 + crowding_ * static_cast<double>(count - 1)) / server.speed;
      for (int64_t token = 3; token <= 60; ++token) {
        now_s += token_s;
        for (const RouteId one : ids) speeds.progress(one, now_s, token);
      }
      for (const RouteId one : ids) speeds.finished(one, now_s, SpeedEnding::kCounts);
    }
    return now_s;
  }

  std::vector<Server> servers_;
  double crowding_;
  double noise_ = 0;
  Rng rng_{0};
  double end_s_ = 0;
  RouteId next_ = 0;
};

double ratio(const ServerSpeeds& speeds, double RouteSpeed::*of) {
  return speeds.speed(1).*of / speeds.speed(0).*of;
}

TEST(ServerSpeeds, FindsAServerThatIsTwiceAsFast) {
  ServerSpeeds speeds(kPatient);
  PlayedServers({{.speed = 1}, {.speed = 2}}).play(speeds, 200);
  // 32 samples of 36 with doubt.
  EXPECT_NEAR(ratio(speeds, &RouteSpeed::answer), std::pow(2, 32.0 / 36), 0.02);
  EXPECT_NEAR(ratio(speeds, &RouteSpeed::prompt), 2, 0.1);
  EXPECT_NEAR(speeds.rates(1).answer, 100, 1);
  EXPECT_NEAR(speeds.rates(0).prompt, 1000, 10);
  EXPECT_NEAR(speeds.speed(0).answer * speeds.speed(1).answer, 1, 1e-9) << "beside their mean";
}

// It gets more because it is faster, and makes each token as slowly as the other: it is faster
// nevertheless. And one that gets more though it is not faster is not taken for a slow one.
TEST(ServerSpeeds, KnowsThatManyAtOnceAreSlow) {
  for (const double crowding : {0.0, 0.1, 0.5, 1.0}) {
    SCOPED_TRACE(crowding);
    ServerSpeeds unlike(kPatient), alike(kPatient);
    PlayedServers({{.speed = 1, .at_once = 4}, {.speed = 2, .at_once = 9}}, crowding)
        .play(unlike, 40);
    EXPECT_NEAR(ratio(unlike, &RouteSpeed::answer), 2, 0.35);
    PlayedServers({{.speed = 1, .at_once = 3}, {.speed = 1, .at_once = 12}}, crowding)
        .play(alike, 40);
    EXPECT_NEAR(ratio(alike, &RouteSpeed::answer), 1, 0.15);
  }
}

// Chance must not look like a server's crowd: the faster one would get more and more.
TEST(ServerSpeeds, DoesNotTakeNoiseForACrowd) {
  double sum = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    ServerSpeeds speeds(kPatient);
    PlayedServers servers({{.speed = 1, .at_once = 2}, {.speed = 2, .at_once = 8}});
    servers.set_noise(0.5, seed);
    servers.play(speeds, 30);
    const double one = ratio(speeds, &RouteSpeed::answer);
    EXPECT_LT(one, 6) << seed;
    sum += one;
  }
  EXPECT_NEAR(sum / 40, 2, 0.4);
}

TEST(ServerSpeeds, IsMovedLittleByStallsAndSurprises) {
  ServerSpeeds speeds(kPatient);
  PlayedServers servers({{.speed = 1}, {.speed = 2}});
  servers.oddity = [](uint64_t number) -> PlayedServers::Oddity {
    if (number % 5 == 0) return {.stall_s = 20};
    if (number % 5 == 1) return {.hit_share = 0.95};
    return {};
  };
  servers.play(speeds, 100);
  EXPECT_NEAR(ratio(speeds, &RouteSpeed::prompt), 2, 0.2);
  EXPECT_NEAR(ratio(speeds, &RouteSpeed::answer), 2, 0.2);
}

TEST(ServerSpeeds, BelievesFewSamplesLittle) {
  double before = 1;
  for (const int answers : {1, 2, 4, 16}) {
    ServerSpeeds speeds(kPatient);
    PlayedServers({{.speed = 1}, {.speed = 4}}).play(speeds, answers);
    const double now = ratio(speeds, &RouteSpeed::answer);
    EXPECT_NEAR(now, std::pow(4, answers / (answers + 4.0)), 0.05);
    EXPECT_GT(now, before);
    before = now;
  }
  ServerSpeeds none({});
  EXPECT_FALSE(none.update(0));
  EXPECT_EQ(none.speed(7).answer, 1);
  EXPECT_EQ(none.rates(7).answer, 0);
}

TEST(ServerSpeeds, FollowsAServerThatChanges) {
  ServerSpeeds speeds(kPatient);
  PlayedServers servers({{.speed = 1}, {.speed = 2}});
  servers.play(speeds, 40);
  ASSERT_GT(ratio(speeds, &RouteSpeed::answer), 1.7);
  servers.set_speeds({2, 1});
  servers.play(speeds, 40);
  EXPECT_LT(ratio(speeds, &RouteSpeed::answer), 1 / 1.7);
}

TEST(ServerSpeeds, ForgetsWhatIsOld) {
  ServerSpeeds speeds({.old_s = 5000});
  PlayedServers servers({{.speed = 1}, {.speed = 2}});
  servers.play(speeds, 40);
  ASSERT_GT(ratio(speeds, &RouteSpeed::answer), 1.7);
  EXPECT_TRUE(speeds.update(servers.end_s() + 5000));
  EXPECT_EQ(ratio(speeds, &RouteSpeed::answer), 1);
  EXPECT_FALSE(speeds.update(servers.end_s() + 6000)) << "nothing is new";
}

TEST(ServerSpeeds, ForgetsWhatAServerWasThatWentAway) {
  ServerSpeeds speeds(kPatient);
  PlayedServers servers({{.speed = 1}, {.speed = 0.25}});
  servers.play(speeds, 40);
  ASSERT_LT(ratio(speeds, &RouteSpeed::answer), 0.3);
  speeds.forget_samples(1);
  EXPECT_TRUE(speeds.update(servers.end_s() + 1));
  EXPECT_EQ(ratio(speeds, &RouteSpeed::answer), 1);
  EXPECT_EQ(ratio(speeds, &RouteSpeed::prompt), 1);
  EXPECT_EQ(speeds.rates(1).answer, 0);
  EXPECT_GT(speeds.rates(0).answer, 0);
  servers.set_speeds({1, 2});
  servers.play(speeds, 40);
  EXPECT_GT(ratio(speeds, &RouteSpeed::answer), 1.7);
  speeds.forget_samples(7);  // of which nothing is known
}

TEST(ServerSpeeds, TakesAnAnswerThatComesWholeByItsShareOfTheWork) {
  ServerSpeeds fresh({});
  fresh.asked(1, 0, 0, {.prompt_tokens = 80});
  fresh.progress(1, 10, 90);
  fresh.finished(1, 10, SpeedEnding::kCounts);
  fresh.update(11);
  EXPECT_NEAR(fresh.rates(0).answer, 10, 0.01) << "80 of 800 were its prompt, 9 s its answer";
  EXPECT_EQ(fresh.rates(0).prompt, 0) << "when its first token came is not known";
  ServerSpeeds prompt({});
  prompt.asked(1, 0, 0, {.prompt_tokens = 4000});
  prompt.progress(1, 10, 90);
  prompt.finished(1, 10, SpeedEnding::kCounts);
  EXPECT_FALSE(prompt.update(11)) << "most of its time was another matter";
}

// All that was made in ten seconds comes within a moment, when somebody on the way wakes up.
TEST(ServerSpeeds, TakesAnAnswerThatComesInBurstsByAllItsTime) {
  ServerSpeeds speeds({});
  speeds.asked(1, 0, 0, {.prompt_tokens = 1});
  for (const int64_t tokens : {5, 60, 99, 100}) {
    speeds.progress(1, 10 + 1e-4 * static_cast<double>(tokens), tokens);
  }
  speeds.finished(1, 11, SpeedEnding::kCounts);
  speeds.update(12);
  EXPECT_NEAR(speeds.rates(0).answer, 10, 0.1);
}

TEST(ServerSpeeds, CountsWhatIsToBeReadInFrontOfAPrompt) {
  ServerSpeeds speeds(kPatient);
  PlayedServers({{.speed = 1, .at_once = 5}}).play(speeds, 20);
  EXPECT_NEAR(speeds.rates(0).prompt, 1000, 1);
}

// Alike, but one of them makes answers for others most of the time, which it is slower by.
TEST(ServerSpeeds, DoesNotTakeAServerForSlowThatIsBusyForOthers) {
  ServerSpeeds speeds(kPatient);
  double now_s = 0;
  for (RouteId id = 0; id < 80; ++id) {
    const auto server = static_cast<RouteServerId>(id % 2);
    const double others = server == 0 ? static_cast<double>(id % 3 * 4) : 0;
    speeds.set_others(server, now_s, others);
    speeds.asked(id, server, now_s, {.prompt_tokens = 10});
    for (int64_t token = 1; token <= 30; ++token) {
      now_s += 0.02 * (1 + 0.5 * others);
      speeds.progress(id, now_s, token);
    }
    speeds.finished(id, now_s, SpeedEnding::kCounts);
  }
  speeds.update(now_s);
  EXPECT_NEAR(ratio(speeds, &RouteSpeed::answer), 1, 0.1);
}

TEST(ServerSpeeds, CountsSeveralAnswersOfOneRequest) {
  ServerSpeeds speeds({});
  speeds.asked(1, 0, 0, {.prompt_tokens = 10, .sequences = 2});
  EXPECT_EQ(speeds.sequences(0), 2);
  speeds.progress(1, 1, 8);
  for (int64_t token = 1; token <= 40; ++token) {
    speeds.progress(1, 1 + 0.1 * static_cast<double>(token), 8 + 2 * token);
  }
  speeds.finished(1, 5, SpeedEnding::kCounts);
  EXPECT_EQ(speeds.sequences(0), 0);
  speeds.update(6);
  EXPECT_NEAR(speeds.rates(0).answer, 10, 1e-6) << "of each of both";
}

TEST(ServerSpeeds, LeavesOutWhatSaysNothing) {
  ServerSpeeds speeds({});
  speeds.asked(1, 0, 0, {.prompt_tokens = 20});
  speeds.progress(1, 1, 4);
  speeds.progress(1, 2, 9);  // too short
  speeds.finished(1, 2, SpeedEnding::kCounts);
  speeds.asked(2, 0, 2, {.prompt_tokens = 20});
  for (int64_t token = 1; token < 50; ++token) {
    speeds.progress(2, 2 + static_cast<double>(token), token);
  }
  speeds.finished(2, 60, SpeedEnding::kIgnored);  // its client was slow
  speeds.progress(3, 60, 5);                      // nobody
  speeds.finished(3, 60, SpeedEnding::kCounts);
  EXPECT_FALSE(speeds.update(100));
  EXPECT_EQ(speeds.speed(0).answer, 1);
}

// Whatever comes: speeds stay within their bounds, and counts come back to nothing.
TEST(ServerSpeeds, StaysInBoundsUnderRandomEvents) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(derive_key(seed, "server speeds"));
    ServerSpeeds speeds({.doubt = 0, .speed_max = 8, .answer_tokens_min = 2});
    std::map<RouteId, RouteServerId> open;
    std::map<RouteId, int64_t> tokens;
    double now_s = 0;
    for (RouteId id = 0; id < 300; ++id) {
      now_s += std::pow(10, rng.uniform() * 8 - 6);
      const auto server = static_cast<RouteServerId>(rng.below(4));
      speeds.asked(id, server, now_s,
                   {.prompt_tokens = static_cast<int64_t>(rng.below(500)),
                    .unread_tokens = static_cast<int64_t>(rng.below(500)),
                    .sequences = 1 + static_cast<int64_t>(rng.below(3))});
      open[id] = server;
      for (int i = 0; i < 20; ++i) {
        now_s += std::pow(10, rng.uniform() * 8 - 6);
        const RouteId one = static_cast<RouteId>(rng.below(static_cast<uint64_t>(id) + 1));
        if (rng.below(8) == 0) {
          speeds.finished(one, now_s, SpeedEnding::kCounts);
          open.erase(one);
        } else {
          speeds.progress(one, now_s, tokens[one] += static_cast<int64_t>(rng.below(9)));
        }
      }
      speeds.update(now_s);
      for (RouteServerId at = 0; at < 4; ++at) {
        const RouteSpeed speed = speeds.speed(at);
        for (const double one : {speed.prompt, speed.answer}) {
          ASSERT_GE(one, 1.0 / 8) << seed;
          ASSERT_LE(one, 8) << seed;
        }
      }
    }
    for (const auto& [id, server] : open) speeds.finished(id, now_s, SpeedEnding::kIgnored);
    for (RouteServerId at = 0; at < 4; ++at) EXPECT_EQ(speeds.sequences(at), 0);
  }
}

}  // namespace
}  // namespace jige::plan
