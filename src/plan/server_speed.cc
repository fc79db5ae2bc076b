#include "plan/server_speed.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kCrowding[] = {0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1};
// A larger one is taken where it is better by this share: noise must not choose.
constexpr double kCrowdingGain = 0.1;
constexpr size_t kFitSamples = 6;  // of a server
constexpr int64_t kFirstToken = 2;
constexpr int64_t kSteadyToken = 4;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

double crowded(double crowding, double beside) { return 1 + crowding * std::max(beside - 1, 0.0); }

}  // namespace

ServerSpeeds::Server& ServerSpeeds::count_until(RouteServerId id, double now_s) {
  const auto [at, is_new] = servers_.try_emplace(id);
  Server& server = at->second;
  if (is_new) server.counted_s = now_s;
  const double seconds = std::max(now_s - server.counted_s, 0.0);
  server.sequence_seconds += seconds * (static_cast<double>(server.own) + server.others);
  server.counted_s += seconds;
  return server;
}

void ServerSpeeds::asked(RouteId id, RouteServerId server_id, double now_s,
                         const SpeedRequest& what) {
  JIGE_CHECK(!requests_.contains(id), "it is under way already");
  Server& server = count_until(server_id, now_s);
  server.own += what.sequences;
  requests_[id] = {
      .server = server_id, .what = what, .asked_s = now_s, .asked_count = server.sequence_seconds};
}

void ServerSpeeds::progress(RouteId id, double now_s, int64_t answer_tokens) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || answer_tokens <= found->second.tokens) return;
  Request& request = found->second;
  Server& server = count_until(request.server, now_s);
  const bool at_once = request.tokens == 0 && answer_tokens >= options_.answer_tokens_min;
  request.tokens = answer_tokens;
  request.last_s = now_s;
  request.last_count = server.sequence_seconds;
  if (request.first_s >= 0) ++request.looks;
  const int64_t sequences = request.what.sequences;
  if (at_once) request.prompt_done = true;  // when its first token came is not known
  if (!request.prompt_done && answer_tokens >= kFirstToken * sequences) {
    request.prompt_done = true;
    const int64_t tokens = request.what.prompt_tokens + request.what.unread_tokens;
    if (tokens >= options_.prompt_tokens_min) {
      const double seconds = now_s - request.asked_s;
      sample(server.prompts, {.at_s = now_s, .value = seconds / static_cast<double>(tokens)});
    }
  }
  if (!at_once && request.first_s < 0 && answer_tokens >= kSteadyToken * sequences) {
    request.first_s = now_s;
    request.first_count = server.sequence_seconds;
    request.first_tokens = answer_tokens;
  }
}

void ServerSpeeds::finished(RouteId id, double now_s, SpeedEnding ending) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Server& server = count_until(found->second.server, now_s);
  server.own -= found->second.what.sequences;
  if (ending == SpeedEnding::kCounts) sample_answer(found->second);
  requests_.erase(found);
}

void ServerSpeeds::sample_answer(const Request& request) {
  const bool whole = request.first_s < 0 || request.looks < options_.looks_min;
  const double begin_s = whole ? request.asked_s : request.first_s;
  const double begin_count = whole ? request.asked_count : request.first_count;
  const double seconds = request.last_s - begin_s;
  const auto sequences = static_cast<double>(request.what.sequences);
  const double tokens =
      static_cast<double>(request.tokens - (whole ? 0 : request.first_tokens)) / sequences;
  if (tokens < static_cast<double>(options_.answer_tokens_min) || seconds <= 0) return;
  double share = 1;  // of the time that is the answer's own
  if (whole) {
    const double answer = options_.answer_cost * tokens;
    share = answer /
            (answer + static_cast<double>(request.what.prompt_tokens + request.what.unread_tokens));
    if (share < options_.whole_share) return;
  }
  sample(servers_.at(request.server).answers,
         {.at_s = request.last_s,
          .value = share * seconds / tokens,
          .beside = (request.last_count - begin_count) / seconds});
}

void ServerSpeeds::sample(Samples& samples, const Sample& one) {
  if (!(one.value > 0)) return;
  samples.push_back(one);
  if (samples.size() > options_.samples_max) samples.pop_front();
  changed_ = true;
}

void ServerSpeeds::set_others(RouteServerId server, double now_s, double running) {
  count_until(server, now_s).others = running;
}

void ServerSpeeds::forget_samples(RouteServerId id) {
  const auto found = servers_.find(id);
  if (found == servers_.end()) return;
  found->second.prompts.clear();
  found->second.answers.clear();
  changed_ = true;
}

bool ServerSpeeds::update(double now_s) {
  if (now_s - updated_s_ < options_.update_s) return false;
  for (auto& [id, server] : servers_) {
    for (Samples* samples : {&server.prompts, &server.answers}) {
      const auto old = std::ranges::find_if(
          *samples, [&](const Sample& one) { return now_s - one.at_s < options_.old_s; });
      changed_ = changed_ || old != samples->begin();
      samples->erase(samples->begin(), old);
    }
  }
  if (!changed_) return false;
  changed_ = false;
  updated_s_ = now_s;
  const Rates answers = rates_of(&Server::answers, choose_crowding());
  const Rates prompts = rates_of(&Server::prompts, 0);
  for (auto& [id, server] : servers_) {
    server.speed.answer = relative(answers, id, 1);
    server.speed.prompt = relative(prompts, id, server.speed.answer);
    const auto rate = [](const Rates& rates, RouteServerId of) {
      const auto found = rates.find(of);
      return found == rates.end() ? 0 : std::exp(found->second.log);
    };
    server.rates = {.prompt = rate(prompts, id), .answer = rate(answers, id)};
  }
  return true;
}

double ServerSpeeds::choose_crowding() const {
  double best = 0, least = std::numeric_limits<double>::infinity();
  for (const double crowding : kCrowding) {
    double apart = 0;
    for (const auto& [id, server] : servers_) {
      if (server.answers.size() < kFitSamples) continue;
      std::vector<double> alone;
      for (const Sample& one : server.answers) {
        alone.push_back(one.value / crowded(crowding, one.beside));
      }
      const double middle = median(alone);
      for (const double one : alone) apart += std::abs(one / middle - 1);
    }
    if (apart >= least * (1 - kCrowdingGain)) continue;
    least = apart;
    best = crowding;
  }
  return best;
}

ServerSpeeds::Rates ServerSpeeds::rates_of(Samples Server::*samples, double crowding) const {
  Rates rates;
  for (const auto& [id, server] : servers_) {
    const Samples& own = server.*samples;
    if (own.empty()) continue;
    std::vector<double> logs;
    for (const Sample& one : own) {
      logs.push_back(std::log(crowded(crowding, one.beside) / one.value));
    }
    rates[id] = {.log = median(std::move(logs)), .count = own.size()};
  }
  return rates;
}

double ServerSpeeds::relative(const Rates& rates, RouteServerId id, double otherwise) const {
  const auto found = rates.find(id);
  if (found == rates.end()) return otherwise;
  double sum = 0;
  for (const auto& [other, rate] : rates) sum += rate.log;
  const double mean = sum / static_cast<double>(rates.size());
  const auto count = static_cast<double>(found->second.count);
  const double trust = count / (count + options_.doubt);
  const double log = trust * (found->second.log - mean) + (1 - trust) * std::log(otherwise);
  return std::clamp(std::exp(log), 1 / options_.speed_max, options_.speed_max);
}

RouteSpeed ServerSpeeds::speed(RouteServerId server) const {
  const auto found = servers_.find(server);
  return found == servers_.end() ? RouteSpeed{} : found->second.speed;
}

ServerRates ServerSpeeds::rates(RouteServerId server) const {
  const auto found = servers_.find(server);
  return found == servers_.end() ? ServerRates{} : found->second.rates;
}

int64_t ServerSpeeds::sequences(RouteServerId server) const {
  const auto found = servers_.find(server);
  return found == servers_.end() ? 0 : found->second.own;
}

}  // namespace jige::plan
