#include "comm/async_group.h"

#include <utility>

#include "base/check.h"
#include "comm/async_engine.h"

namespace jige::comm {

Status Pending::wait_for(int64_t begin, int64_t count) const {
  if (state_ == nullptr) return {};
  std::unique_lock lock(state_->signals->mutex);
  const auto ready = [&] { return state_->over || state_->final_ranges.covers(begin, count); };
  if (!ready()) {
    const auto range = state_->awaited.insert(state_->awaited.end(), {begin, count});
    state_->signals->changed.wait(lock, ready);
    state_->awaited.erase(range);
  }
  return state_->error ? Status(tl::unexpected<Error>(*state_->error)) : Status();
}

Status Pending::wait() const {
  if (state_ == nullptr) return {};
  std::unique_lock lock(state_->signals->mutex);
  state_->signals->changed.wait(lock, [&] { return state_->over; });
  return state_->error ? Status(tl::unexpected<Error>(*state_->error)) : Status();
}

bool Pending::is_over() const {
  if (state_ == nullptr) return true;
  const std::lock_guard lock(state_->signals->mutex);
  return state_->over;
}

AsyncGroup::AsyncGroup(std::unique_ptr<AsyncEngine> engine) : engine_(std::move(engine)) {}
AsyncGroup::~AsyncGroup() = default;

std::unique_ptr<AsyncGroup> AsyncGroup::over(Communicator group) {
  return std::unique_ptr<AsyncGroup>(
      new AsyncGroup(std::make_unique<AsyncEngine>(std::move(group))));
}

int AsyncGroup::rank() const { return engine_->group().rank(); }
int AsyncGroup::size() const { return engine_->group().size(); }
const RingPlan& AsyncGroup::plan() const { return engine_->group().plan(); }
std::string AsyncGroup::name(int rank) const { return engine_->group().transport().name(rank); }
const char* AsyncGroup::kind() const { return engine_->group().transport().kind(); }

Status AsyncGroup::health() const { return engine_->health(); }
double AsyncGroup::silent_seconds(int rank) const { return engine_->silent_seconds(rank); }

Pending AsyncGroup::start(Operation operation) {
  auto state = engine_->make_state();
  state->operation = std::move(operation);
  const Collective collective = state->operation.collective;
  if (collective == Collective::kBarrier || collective == Collective::kAllToAll) {
    return AsyncEngine::finished(
        std::move(state), Error{Code::kUnsupported, fmt::format("{} has no form that runs beside "
                                                                "computation",
                                                                collective_name(collective))});
  }
  if (size() == 1) {
    const Status ran = engine_->group().run(state->operation);
    return AsyncEngine::finished(std::move(state),
                                 ran ? std::nullopt : std::optional<Error>(ran.error()));
  }
  auto flows = engine_->group().next_flows(state->operation);
  if (!flows) return AsyncEngine::finished(std::move(state), flows.error());
  state->flows = std::move(*flows);
  return engine_->start(std::move(state));
}

namespace {

// A message has no operation; only its bytes count.
Header message_header(int from, int to, size_t bytes, uint64_t tag) {
  return {.collective = Collective::kBroadcast,
          .dtype = DType::kU8,
          .path = Path::kMessage,
          .sequence = tag,
          .root = to,
          .sender = from,
          .payload_bytes = bytes};
}

}  // namespace

Pending AsyncGroup::send(int to, std::span<const std::byte> bytes, uint64_t tag) {
  JIGE_CHECK(to >= 0 && to < size() && to != rank(), "a message from rank {} to {}", rank(), to);
  auto state = engine_->make_state();
  state->operation.dtype = DType::kU8;
  state->flows.push_back(send_flow({to, 0}, message_header(rank(), to, bytes.size(), tag), bytes));
  return engine_->start(std::move(state));
}

Pending AsyncGroup::receive(int from, std::span<std::byte> bytes, uint64_t tag) {
  JIGE_CHECK(from >= 0 && from < size() && from != rank(), "a message from rank {} to {}", from,
             rank());
  auto state = engine_->make_state();
  state->operation.dtype = DType::kU8;
  state->flows.push_back(
      receive_flow({from, 0}, message_header(from, rank(), bytes.size(), tag), bytes));
  return engine_->start(std::move(state));
}

void AsyncGroup::fail_with(const Error& error) { engine_->fail_with(error); }

}  // namespace jige::comm
