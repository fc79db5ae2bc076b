#include "comm/operation.h"

#include <algorithm>

namespace jige::comm {
namespace {

// A rank that calls another operation may talk on links that this one does not listen to: compares
// the headers that have come there. One that has done its part of this operation may have left.
Status look_for_others(const OperationContext& context) {
  for (const PlanStream& stream : plan_streams(*context.plan, context.size())) {
    if (stream.to != context.rank()) continue;
    const Link link = {stream.from, stream.lane};
    const auto& used = context.links_in_use;
    if (std::find(used.begin(), used.end(), link) != used.end()) continue;
    const std::span<const std::byte> in = context.transport->glance(link);
    if (in.empty()) continue;
    const auto got = parse_header(in.first<kHeaderBytes>());
    if (!got || got->sequence != context.header.sequence) continue;
    Header expected = *got;
    expected.collective = context.header.collective;
    expected.dtype = context.header.dtype;
    expected.redop = context.header.redop;
    expected.count = context.header.count;
    expected.root = context.header.root;
    expected.path = context.header.path;
    JIGE_DO(compare_headers(expected, *got, context.transport->name(stream.from)));
  }
  return {};
}

}  // namespace

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
                                    .on_stall = [&] { return look_for_others(context); }};
  return run_flows(flow_context, flows);
}

}  // namespace jige::comm
