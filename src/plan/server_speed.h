// ServerSpeeds: how fast servers are beside one another, by the answers that came of them: a pure
// state machine on whatever clock its caller has.
//
//   ServerSpeeds speeds({});
//   speeds.asked(id, server, now_s, {.prompt_tokens = 400, .unread_tokens = 1200});
//   speeds.progress(id, now_s, tokens_so_far);     // whenever some have come
//   speeds.finished(id, now_s, SpeedEnding::kCounts);
//   if (speeds.update(now_s)) policy.set_speed(server, speeds.speed(server));
//
// Of an answer two samples are taken:
//
//   prompt   (tokens that were unread at the server when it was asked, its own among them)
//              / seconds to its second token; some servers begin an answer with an event of none
//   answer   seconds from the fourth token to the last / tokens between, which depends on how many
//              answers the server makes at once: c, the mean of that time, others among them
//
// An answer that comes whole, its tokens told at the end, has no sample of its prompt; that of its
// answer is of all its time, where at least whole_share of its work was its own answer. So is that
// of one whose tokens came in fewer than looks_min bursts: when they were made is not known. Short
// ones (prompt_tokens_min, answer_tokens_min) say little and are left out.
//
// A token of an answer takes a server a * (1 + k * (c - 1)): what it takes alone, and more where it
// makes several; k is 0 where that is for nothing, and 1 where it makes one after the other. It is
// one for all servers: of kCrowding the one by which the samples of each are the least apart from
// their median, in sum. Where all samples of a server are of one c, or where time does not depend
// on it, it is 0; so a server that gets more than others, and therefore makes each more slowly, is
// not taken for a slow one, nor one that could make more at once for a fast one.
//
// The rate of a server is the median of its last samples_max samples, none older than old_s: one
// that stalled, or one whose prompt was known there to everybody's surprise, moves it little. Its
// speed is its rate over the geometric mean of those that have one, to the power n / (n + doubt)
// for n samples: few say little. Prompts without a sample are as fast as answers.
//
// Invariants: speeds lie between 1 / speed_max and speed_max, however odd the samples.
// Threads: none; one caller. Memory: bounded by the servers and the requests under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "plan/route_policy.h"

namespace jige::plan {

struct SpeedOptions {
  size_t samples_max = 32;
  double old_s = 300;
  double doubt = 4;  // samples
  double speed_max = 32;
  double update_s = 0.25;
  int64_t prompt_tokens_min = 64;
  int64_t answer_tokens_min = 12;
  double whole_share = 0.7;
  int64_t looks_min = 4;
  double answer_cost = 8;  // as RouteOptions
};

// What a server is asked for.
struct SpeedRequest {
  int64_t prompt_tokens = 1;  // but what is known there
  int64_t unread_tokens = 0;  // of others, in front of it
  int64_t sequences = 1;      // answers that it makes for it at once
};

enum class SpeedEnding {
  kCounts,
  kIgnored,  // it was given up, or something else than its server held it up
};

// What is told to people: tokens a second.
struct ServerRates {
  double prompt = 0;  // 0: not known
  double answer = 0;  // of one answer that is made alone
};

class ServerSpeeds {
 public:
  explicit ServerSpeeds(SpeedOptions options) : options_(options) {}

  // REQUIRES: the id is new, or finished.
  void asked(RouteId request, RouteServerId server, double now_s, const SpeedRequest& what);
  // So many tokens of all its sequences have come. Ignored, as below, where it is not under way.
  void progress(RouteId request, double now_s, int64_t answer_tokens);
  void finished(RouteId request, double now_s, SpeedEnding ending);
  // Sequences that the server makes for others.
  void set_others(RouteServerId server, double now_s, double running);
  // REQUIRES: none of its requests is under way.
  void forget(RouteServerId server) { servers_.erase(server); }
  // It was away: what answers there now may be another program, or another machine.
  void forget_samples(RouteServerId server);

  // Reckons anew where something has changed and update_s have passed. Whether it did.
  bool update(double now_s);
  RouteSpeed speed(RouteServerId server) const;
  ServerRates rates(RouteServerId server) const;
  // Sequences that it makes for this caller now.
  int64_t sequences(RouteServerId server) const;

 private:
  struct Sample {
    double at_s = 0;
    double value = 0;  // seconds of a token
    double beside = 1;
  };
  using Samples = std::deque<Sample>;
  struct Server {
    int64_t own = 0;
    double others = 0;
    double counted_s = 0;
    double sequence_seconds = 0;  // up to counted_s
    Samples prompts, answers;
    RouteSpeed speed;
    ServerRates rates;
  };
  struct Request {
    RouteServerId server = -1;
    SpeedRequest what;
    double asked_s = 0, asked_count = 0;
    double first_s = -1, first_count = 0;  // when the tokens of first_tokens had come
    int64_t first_tokens = 0;
    int64_t looks = 0;  // at what came behind these
    double last_s = 0, last_count = 0;
    int64_t tokens = 0;
    bool prompt_done = false;
  };
  struct Rate {
    double log = 0;
    size_t count = 0;
  };
  using Rates = std::map<RouteServerId, Rate>;

  Server& count_until(RouteServerId id, double now_s);
  void sample(Samples& samples, const Sample& one);
  void sample_answer(const Request& request);
  double choose_crowding() const;
  Rates rates_of(Samples Server::*samples, double crowding) const;
  double relative(const Rates& rates, RouteServerId id, double otherwise) const;

  SpeedOptions options_;
  std::map<RouteServerId, Server> servers_;
  std::map<RouteId, Request> requests_;
  bool changed_ = false;
  double updated_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace jige::plan
