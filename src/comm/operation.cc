#include "comm/operation.h"

#include <algorithm>

namespace jige::comm {

Status look_for_others(Transport& transport, const RingPlan& plan, const Header& ours,
                       std::span<const Link> listened) {
  for (const PlanStream& stream : plan_streams(plan, transport.size())) {
    if (stream.to != transport.rank()) continue;
    const Link link = {stream.from, stream.lane};
    if (std::find(listened.begin(), listened.end(), link) != listened.end()) continue;
    const std::span<const std::byte> in = transport.glance(link);
    if (in.empty()) continue;
    const auto got = parse_header(in.first<kHeaderBytes>());
    const bool same = got && got->path != Path::kMessage && got->sequence == ours.sequence;
    if (!same) continue;
    Header expected = *got;
    expected.collective = ours.collective;
    expected.dtype = ours.dtype;
    expected.redop = ours.redop;
    expected.count = ours.count;
    expected.root = ours.root;
    expected.path = ours.path;
    JIGE_DO(compare_headers(expected, *got, transport.name(stream.from)));
  }
  return {};
}

Status run_operation_flows(OperationContext& context, const Operation& operation,
                           std::span<Flow> flows) {
  for (const Flow& flow : flows) {
    if (flow.in) context.links_in_use.push_back(*flow.in);
  }
  const FlowContext flow_context = {.transport = context.transport,
                                    .dtype = operation.dtype,
                                    .redop = operation.redop,
                                    .timeout_s = context.timeout_s,
                                    .cancelled = context.cancelled,
                                    .on_final = operation.on_final,
                                    .on_stall = [&] {
                                      return look_for_others(*context.transport, *context.plan,
                                                             context.header, context.links_in_use);
                                    }};
  return run_flows(flow_context, flows);
}

}  // namespace jige::comm
