#include "comm/async_engine.h"

#include <algorithm>
#include <utility>

namespace jige::comm {
namespace {

constexpr int64_t kSleepNs = 100'000'000;  // between looks at who is silent
constexpr double kFlushSeconds = 10;       // for the last bytes of a group that ends

bool contains(const std::vector<Link>& links, const std::optional<Link>& link) {
  return link && std::find(links.begin(), links.end(), *link) != links.end();
}

}  // namespace

bool Pending::State::add_final(int64_t begin, int64_t count) {
  final_ranges.add(begin, count);
  return std::any_of(awaited.begin(), awaited.end(), [&](const ElementRange& range) {
    return final_ranges.covers(range.begin, range.count);
  });
}

AsyncEngine::AsyncEngine(Communicator group) : group_(std::move(group)) {
  heard_ns_.assign(static_cast<size_t>(group_.size()), monotonic_ns());
  thread_ = std::thread([this] { main(); });
}

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(signals_->mutex);
    closing_ = true;
  }
  signals_->changed.notify_all();
  group_.transport().interrupt();
  thread_.join();
}

std::shared_ptr<Pending::State> AsyncEngine::make_state() const {
  auto state = std::make_shared<Pending::State>();
  state->signals = signals_;
  return state;
}

Pending AsyncEngine::finished(std::shared_ptr<Pending::State> state, std::optional<Error> error) {
  {
    const std::lock_guard lock(state->signals->mutex);
    state->over = true;
    state->error = std::move(error);
  }
  state->signals->changed.notify_all();
  return Pending(std::move(state));
}

Pending AsyncEngine::start(std::shared_ptr<Pending::State> state) {
  Pending::State* raw = state.get();
  const OnFinal caller = state->operation.on_final;
  state->context = {.transport = &group_.transport(),
                    .dtype = state->operation.dtype,
                    .redop = state->operation.redop,
                    .timeout_s = group_.options().timeout_s,
                    .on_final = [raw, caller](int64_t begin, int64_t count) {
                      if (caller) caller(begin, count);
                      bool wakes = false;
                      {
                        const std::lock_guard lock(raw->signals->mutex);
                        wakes = raw->add_final(begin, count);
                      }
                      if (wakes) raw->signals->changed.notify_all();
                    }};
  {
    const std::lock_guard lock(signals_->mutex);
    if (error_) {
      state->over = true;
      state->error = error_;
      return Pending(std::move(state));
    }
    started_.push_back(state);
  }
  group_.transport().interrupt();
  return Pending(std::move(state));
}

void AsyncEngine::fail_with(const Error& error) {
  {
    const std::lock_guard lock(signals_->mutex);
    if (error_ || asked_error_) return;
    asked_error_ = error;
  }
  group_.transport().interrupt();
  std::unique_lock lock(signals_->mutex);
  signals_->changed.wait(lock, [&] { return error_.has_value(); });
}

bool AsyncEngine::take_started() {
  std::optional<Error> error;
  {
    std::unique_lock lock(signals_->mutex);
    active_.splice(active_.end(), started_);
    // After an error there is nothing to do but to wait for the end.
    if (error_) signals_->changed.wait(lock, [&] { return closing_; });
    if (closing_ && (error_ || active_.empty())) return false;
    error = asked_error_;
    if (closing_ && !error) {
      error = Error{Code::kCancelled, "it ended in the middle of a collective"};
    }
  }
  if (error) end_with(*error);
  return true;
}

// A flow whose links an earlier one uses waits; what has begun goes on.
Result<bool> AsyncEngine::advance_state(Pending::State& state, std::vector<Link>& in,
                                        std::vector<Link>& out) {
  bool moved = false;
  const auto advance_one = [&](FlowRunner& runner) -> Status {
    JIGE_TRY(const bool now, runner.advance());
    moved = moved || now || runner.done();
    if (runner.done()) return {};
    runner.list_wants(wants_);
    if (runner.flow().in) in.push_back(*runner.flow().in);
    if (runner.flow().out) out.push_back(*runner.flow().out);
    return {};
  };
  for (auto runner = state.runners.begin(); runner != state.runners.end();) {
    JIGE_DO(advance_one(*runner));
    runner = runner->done() ? state.runners.erase(runner) : std::next(runner);
  }
  for (; state.begun_count < state.flows.size(); ++state.begun_count) {
    const Flow& flow = state.flows[state.begun_count];
    if (contains(in, flow.in) || contains(out, flow.out)) break;
    FlowRunner& runner = state.runners.emplace_back(state.context, flow);
    JIGE_DO(advance_one(runner));
    if (runner.done()) state.runners.pop_back();
  }
  // Those of its links that have not begun are taken too.
  for (size_t i = state.begun_count; i < state.flows.size(); ++i) {
    if (state.flows[i].in) in.push_back(*state.flows[i].in);
    if (state.flows[i].out) out.push_back(*state.flows[i].out);
  }
  return moved;
}

Result<bool> AsyncEngine::advance() {
  std::vector<Link>& in = listened_;
  std::vector<Link> out;
  bool moved = false;
  in.clear();
  wants_.clear();
  for (auto state = active_.begin(); state != active_.end();) {
    JIGE_TRY(const bool now, advance_state(**state, in, out));
    moved = moved || now;
    const bool over = (*state)->runners.empty() && (*state)->begun_count == (*state)->flows.size();
    if (!over) {
      ++state;
      continue;
    }
    finished(*state, std::nullopt);
    state = active_.erase(state);
  }
  return moved;
}

Status AsyncEngine::check_silence() const {
  const double timeout_s = group_.options().timeout_s;
  Transport& transport = group_.transport();
  if (still_.seconds() < timeout_s) return {};
  const bool silent = std::any_of(wants_.begin(), wants_.end(), [&](const Want& want) {
    return transport.silent_seconds(want.link.peer) > timeout_s;
  });
  return silent ? Status(tl::unexpected<Error>(transport.timeout_error(wants_, timeout_s)))
                : Status();
}

// A message says what it is on the link where it is awaited; of a collective the others may take
// other links.
Status AsyncEngine::look_for_others() const {
  for (const auto& state : active_) {
    const Flow& flow = state->flows.front();
    const Header& ours = flow.in ? flow.in_header : flow.out_header;
    if (ours.path == Path::kMessage) continue;
    JIGE_DO(comm::look_for_others(group_.transport(), group_.plan(), ours, listened_));
  }
  return {};
}

void AsyncEngine::note_heard() {
  const int64_t now = monotonic_ns();
  const std::lock_guard lock(signals_->mutex);
  for (int r = 0; r < group_.size(); ++r) {
    heard_ns_[static_cast<size_t>(r)] =
        now - static_cast<int64_t>(group_.transport().silent_seconds(r) * 1e9);
  }
}

Status AsyncEngine::health() const {
  const std::lock_guard lock(signals_->mutex);
  return error_ ? Status(tl::unexpected<Error>(*error_)) : Status();
}

double AsyncEngine::silent_seconds(int rank) const {
  const std::lock_guard lock(signals_->mutex);
  return static_cast<double>(monotonic_ns() - heard_ns_[static_cast<size_t>(rank)]) * 1e-9;
}

// A wait that is met at once tells nobody anything; but the others want to hear of this rank.
Status AsyncEngine::keep_in_touch() {
  const int64_t now = monotonic_ns();
  if (now - touched_ns_ < kHeartbeatNs) return {};
  touched_ns_ = now;
  note_heard();
  return group_.transport().wait({}, Deadline::at_ns(now));
}

Status AsyncEngine::sleep() {
  const Deadline end = Deadline::at_ns(monotonic_ns() + kSleepNs);
  JIGE_DO(group_.transport().wait(wants_, end));
  still_.look();
  if (end.passed()) JIGE_DO(look_for_others());
  return check_silence();
}

void AsyncEngine::end_with(const Error& error) {
  group_.transport().abort(error);
  {
    const std::lock_guard lock(signals_->mutex);
    error_ = error;
    active_.splice(active_.end(), started_);
    for (const auto& state : active_) {
      state->over = true;
      state->error = error;
    }
  }
  active_.clear();
  signals_->changed.notify_all();
}

void AsyncEngine::main() {
  while (take_started()) {
    const Result<bool> moved = advance();
    if (!moved) {
      end_with(moved.error());
      continue;
    }
    if (*moved) still_.note_movement();
    Status alright = keep_in_touch();
    if (alright && !*moved) alright = sleep();
    if (!alright) end_with(alright.error());
  }
  (void)group_.transport().flush(Deadline::after(kFlushSeconds));
}

}  // namespace jige::comm
