#include "profile/agent_collective.h"

#include <algorithm>

#include "comm/join.h"

namespace jige::profile {
namespace {

// What a rank puts in: small whole numbers, whose sum is exact in any order.
float value_of(int rank, int64_t index) {
  return static_cast<float>((rank + 1) * (index % 13 + 1));
}

Status check_sum(const comm::Communicator& group, const std::vector<float>& sum) {
  const int ranks = group.size() * (group.size() + 1) / 2;
  for (size_t i = 0; i < sum.size(); ++i) {
    const auto wanted = static_cast<float>(ranks * (static_cast<int64_t>(i) % 13 + 1));
    if (sum[i] != wanted) {
      return fail(Code::kCorrupt, "rank {}: element {} of the all-reduce is {}, must be {}",
                  group.rank(), i, sum[i], wanted);
    }
  }
  return {};
}

// Block by block what each rank sent to this one.
Status check_blocks(const comm::Communicator& group, const std::vector<float>& got, int64_t count) {
  for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
    const float wanted = value_of(static_cast<int>(i / count), group.rank() * count + i % count);
    if (got[static_cast<size_t>(i)] != wanted) {
      return fail(Code::kCorrupt, "rank {}: element {} of the all-to-all is {}, must be {}",
                  group.rank(), i, got[static_cast<size_t>(i)], wanted);
    }
  }
  return {};
}

std::vector<int> ranks_of(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

comm::RingPlan plan_of(const CollectMessage& message) {
  comm::RingPlan plan;
  for (const RingOrder& ring : message.rings) {
    plan.rings.push_back({ranks_of(ring.order), ring.weight});
  }
  for (const std::vector<int64_t>& round : message.rounds) plan.rounds.push_back(ranks_of(round));
  if (message.trees.size() > 1) {
    plan.trees = comm::TreePair::over(ranks_of(message.trees));
    plan.trees->bytes_max = kCollectiveBytesMax;
  }
  return plan;
}

// `meeting` is where the others come to: of rank 0, null for all others. Fails with
// kInvalidArgument without one, kCorrupt for a wrong result, and as joining and the operation do.
Result<CollectedMessage> run_collective(const CollectMessage& message, comm::Listener* meeting,
                                        const std::string& transport_kind,
                                        const std::atomic<bool>* cancelled,
                                        std::optional<comm::Communicator>& group) {
  if (message.rank == 0 && !meeting) {
    return fail(Code::kInvalidArgument, "rank 0 was not told to listen before");
  }
  const double timeout_s = static_cast<double>(message.timeout_ms) / 1e3;
  comm::RingPlan plan = plan_of(message);
  comm::JoinOptions join;
  join.place = {static_cast<int>(message.rank), plan.rings.front().size(), "profiler"};
  join.rendezvous = {message.address, static_cast<int>(message.port)};
  join.bind_host = message.own;
  join.transport = transport_kind;
  join.congestion = message.congestion;
  join.timeout_s = timeout_s;
  join.cancelled = cancelled;
  JIGE_TRY(std::unique_ptr<comm::Transport> transport,
           comm::join_group(join, plan, message.rank == 0 ? meeting : nullptr));
  JIGE_TRY(comm::Communicator joined,
           comm::Communicator::over(
               std::move(transport), plan,
               {.timeout_s = timeout_s, .direct_bytes_max = 0, .cancelled = cancelled}));
  group.emplace(std::move(joined));
  const bool exchanges = !message.rounds.empty();
  // Bytes are those of the whole: of the array, or of all blocks of a rank.
  const int64_t blocks = exchanges ? group->size() : 1;
  const int64_t count =
      std::max<int64_t>(1, message.bytes / static_cast<int64_t>(sizeof(float)) / blocks);
  std::vector<float> own(static_cast<size_t>(blocks * count)), result(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = value_of(group->rank(), static_cast<int64_t>(i));
  }
  const auto run = [&] {
    return exchanges ? group->all_to_all(own.data(), result.data(), count, DType::kF32)
                     : group->all_reduce(own.data(), result.data(), count, DType::kF32,
                                         comm::RedOp::kSum);
  };
  JIGE_DO(run());
  JIGE_DO(exchanges ? check_blocks(*group, result, count) : check_sum(*group, result));
  CollectedMessage collected;
  for (int64_t repeat = 0; repeat < message.repeats; ++repeat) {
    JIGE_DO(group->barrier());
    const int64_t begin = comm::monotonic_ns();
    JIGE_DO(run());
    collected.times_ns.push_back(comm::monotonic_ns() - begin);
  }
  return collected;
}

}  // namespace

std::optional<AgentMessage> answer_collective(const AgentMessage& message, Meeting& meeting,
                                              const std::string& transport,
                                              const std::atomic<bool>* cancelled) {
  meeting.group.reset();
  const auto refusal = [](const Error& error) { return ErrorMessage{error.code, error.message}; };
  if (const auto* listen = std::get_if<ListenMessage>(&message)) {
    auto opened = comm::Listener::open({listen->address, 0});
    if (!opened) return refusal(opened.error());
    meeting.listener.emplace(std::move(*opened));
    return ListeningMessage{meeting.listener->address().port};
  }
  const auto* collect = std::get_if<CollectMessage>(&message);
  if (!collect) return std::nullopt;
  comm::Listener* here = meeting.listener ? &*meeting.listener : nullptr;
  auto collected = run_collective(*collect, here, transport, cancelled, meeting.group);
  meeting.listener.reset();
  if (!collected) return refusal(collected.error());
  return std::move(*collected);
}

}  // namespace jige::profile
