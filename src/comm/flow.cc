#include "comm/flow.h"

#include <algorithm>
#include <vector>

#include "comm/flow_runner.h"
#include "comm/stillness.h"

namespace jige::comm {
namespace {

constexpr int64_t kStallNs = 100'000'000;  // without movement, before causes are looked for

// Whether any flow has moved; lists what the others wait for.
Result<bool> advance_all(std::vector<FlowRunner>& runners, std::vector<Want>& wants) {
  bool moved = false;
  wants.clear();
  for (FlowRunner& runner : runners) {
    if (runner.done()) continue;
    JIGE_TRY(const bool now, runner.advance());
    moved = moved || now;
    if (!runner.done()) runner.list_wants(wants);
  }
  return moved;
}

Status run_to_end(const FlowContext& context, std::vector<FlowRunner>& runners) {
  Transport& transport = *context.transport;
  std::vector<Want> wants;
  const auto done = [](const FlowRunner& runner) { return runner.done(); };
  Stillness still;
  for (;;) {
    if (context.cancelled != nullptr && *context.cancelled) {
      return tl::unexpected<Error>(interruption());
    }
    JIGE_TRY(const bool moved, advance_all(runners, wants));
    if (std::all_of(runners.begin(), runners.end(), done)) break;
    if (moved) {
      still.note_movement();
      continue;
    }
    const auto end = [&] {
      return Deadline::at_ns(still.since_ns() + static_cast<int64_t>(context.timeout_s * 1e9));
    };
    const Deadline stall = Deadline::at_ns(monotonic_ns() + kStallNs);
    JIGE_DO(transport.wait(wants, end().earlier(stall)));
    still.look();
    if (stall.passed() && context.on_stall) JIGE_DO(context.on_stall());
    if (!end().passed()) continue;
    JIGE_TRY(const bool at_last, advance_all(runners, wants));
    if (!at_last) return tl::unexpected<Error>(transport.timeout_error(wants, context.timeout_s));
    still.note_movement();
  }
  return transport.flush(Deadline::after(context.timeout_s).unless(context.cancelled));
}

}  // namespace

Error interruption() { return {Code::kCancelled, "interrupted in the middle of a collective"}; }

Flow send_flow(Link to, const Header& header, std::span<const std::byte> bytes) {
  const Step step = {
      .bytes = static_cast<int64_t>(bytes.size()), .send = true, .local = bytes.data()};
  return {.out = to,
          .out_header = header,
          .step_count = bytes.empty() ? 0 : 1,
          .step = [step](int64_t) { return step; }};
}

Flow receive_flow(Link from, const Header& header, std::span<std::byte> bytes) {
  const Step step = {
      .bytes = static_cast<int64_t>(bytes.size()), .receive = true, .store = bytes.data()};
  return {.in = from,
          .in_header = header,
          .step_count = bytes.empty() ? 0 : 1,
          .step = [step](int64_t) { return step; }};
}

Status run_flows(const FlowContext& context, std::span<Flow> flows) {
  std::vector<FlowRunner> runners;
  runners.reserve(flows.size());
  for (Flow& flow : flows) runners.emplace_back(context, flow);
  Status ran = run_to_end(context, runners);
  if (!ran) context.transport->abort(ran.error());
  return ran;
}

}  // namespace jige::comm
