#include "serve/lasting_layers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace jige::serve {
namespace {

// Between two attempts to connect.
constexpr double kAttemptPauseMinS = 0.1;
constexpr double kAttemptPauseMaxS = 2;

}  // namespace

LastingLayers::LastingLayers(std::unique_ptr<LayerGroup> group, Options options)
    : options_(std::move(options)), group_(std::move(group)) {
  const size_t holders = options_.group.local.size() + options_.group.holders.size();
  JIGE_CHECK(holders == options_.ranges.size(), "{} ranges for {} holders", options_.ranges.size(),
             holders);
  options_.group.cancelled = &ending_;
}

LastingLayers::~LastingLayers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LastingLayers::set_gone(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!gone_) gone_ = error;
}

void LastingLayers::give_up(const Error& error) {
  set_gone(error);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (group_) group_->give_up(error);
  }
  changed_.notify_all();
}

std::optional<Error> LastingLayers::gone() const {
  const std::lock_guard lock(mutex_);
  if (gone_ || options_.restore_s > 0) return gone_;
  return group_->error();
}

Result<LayerGroup*> LastingLayers::group() const {
  if (group_) return group_.get();
  const std::lock_guard lock(mutex_);
  return tl::unexpected(gone_ ? *gone_ : *why_);
}

int64_t LastingLayers::piece_rows(int64_t rows) const {
  return group_ ? group_->piece_rows(rows) : rows;
}

Status LastingLayers::start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows) {
  JIGE_TRY(LayerGroup* const group, this->group());
  JIGE_DO(group->start(sequences, rows));
  ++started_;
  return {};
}

Status LastingLayers::finish(int64_t count) {
  JIGE_TRY(LayerGroup* const group, this->group());
  return group->finish(std::max<int64_t>(0, count - before_));
}

Status LastingLayers::copy_block(int32_t src, int32_t dst) {
  JIGE_TRY(LayerGroup* const group, this->group());
  return group->copy_block(src, dst);
}

Status LastingLayers::copy_state(int32_t src, int32_t dst) {
  JIGE_TRY(LayerGroup* const group, this->group());
  return group->copy_state(src, dst);
}

bool LastingLayers::lost() const { return !group_ || group_->error(); }

Result<bool> LastingLayers::restore() {
  JIGE_CHECK(lost(), "layers are restored that are not lost");
  if (const std::optional<Error> error = gone()) return tl::unexpected(*error);
  if (group_) {
    std::unique_ptr<LayerGroup> old;
    {
      const std::lock_guard lock(mutex_);
      why_ = group_->error();
      old = std::move(group_);
    }
    log_warn("{}; requests wait, and for up to {:.0f} s it is asked for them again", why_->message,
             options_.restore_s);
    old.reset();  // before anybody is asked: a holder serves one program at a time
    thread_ = std::thread([this] { connect_again(); });
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!made_) return false;
    group_ = std::move(made_);
  }
  thread_.join();
  before_ = started_;
  return true;
}

Result<std::unique_ptr<LayerGroup>> LastingLayers::connect(double seconds_max) const {
  LayerGroupOptions options = options_.group;
  options.connect_s = std::min(options.connect_s, seconds_max);
  JIGE_TRY(auto group, LayerGroup::connect(options_.folder, options));
  JIGE_DO(group->ask(options_.sizes, options_.ranges));
  JIGE_TRY(const std::vector<int64_t> bytes, group->wait_until_held());
  log_debug("{} machines hold layers again", bytes.size());
  return group;
}

bool LastingLayers::pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [&] { return ending_.load(); });
}

void LastingLayers::connect_again() {
  const StopWatch watch;
  std::string told;
  Error last = *why_;
  double pause_s = kAttemptPauseMinS;
  for (double left_s = options_.restore_s; !ending_ && left_s > 0;
       left_s = options_.restore_s - watch.seconds()) {
    auto made = connect(left_s);
    if (made) {
      log_info("layers on other machines are back after {:.1f} s", watch.seconds());
      const std::lock_guard lock(mutex_);
      made_ = std::move(*made);
      return;
    }
    last = std::move(made.error());
    const bool other_model = last.code == Code::kInvalidArgument;
    last.code = Code::kUnavailable;
    if (other_model) return set_gone(last);
    if (last.message != told) log_warn("{}", last.message);
    told = last.message;
    if (!pause(pause_s)) break;
    pause_s = std::min(2 * pause_s, kAttemptPauseMaxS);
  }
  last.message = fmt::format("layers on another machine did not come back within {:.0f} s: {}",
                             watch.seconds(), last.message);
  set_gone(last);
}

}  // namespace jige::serve
