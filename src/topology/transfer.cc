#include "topology/transfer.h"

#include <algorithm>

#include "base/split.h"
#include "topology/topology.h"

namespace jige::topology {

std::string transfer_text(const Topology& topology, const Transfer& transfer) {
  const auto name = [&](int32_t component) -> const std::string& {
    return topology.component(component).name;
  };
  std::string kind;
  switch (transfer.kind) {
    case TransferKind::kPush:
      kind = "push";
      break;
    case TransferKind::kPull:
      kind = "pull";
      break;
    case TransferKind::kStaged:
      kind = "via-" + name(transfer.via);
      break;
    case TransferKind::kSend:
      kind = "send";
      break;
  }
  return fmt::format("{}>{}:{}{}", name(transfer.src), name(transfer.dst), kind,
                     transfer.engine == Engine::kCopy ? "+copy" : "");
}

Result<Transfer> parse_transfer(const Topology& topology, std::string_view text) {
  const size_t arrow = text.find('>');
  const size_t colon = text.find(':', arrow == std::string_view::npos ? 0 : arrow);
  if (arrow == std::string_view::npos || colon == std::string_view::npos) {
    return fail(
        Code::kInvalidArgument,
        "transfer \"{}\" must look like gpu0>gpu1:push, with push, pull, via-MEMORY or send "
        "at its end",
        text);
  }
  const auto find = [&](std::string_view name) -> Result<int32_t> {
    const int32_t found = topology.find(name);
    if (found >= 0) return found;
    return fail(Code::kNotFound, "transfer \"{}\": {} has no component \"{}\"", text,
                topology.name(), name);
  };
  Transfer transfer;
  JIGE_TRY(transfer.src, find(text.substr(0, arrow)));
  JIGE_TRY(transfer.dst, find(text.substr(arrow + 1, colon - arrow - 1)));
  std::string_view kind = text.substr(colon + 1);
  if (kind.ends_with("+copy")) {
    transfer.engine = Engine::kCopy;
    kind.remove_suffix(5);
  }
  if (kind == "push") {
    transfer.kind = TransferKind::kPush;
  } else if (kind == "pull") {
    transfer.kind = TransferKind::kPull;
  } else if (kind == "send") {
    transfer.kind = TransferKind::kSend;
  } else if (kind.starts_with("via-")) {
    transfer.kind = TransferKind::kStaged;
    JIGE_TRY(transfer.via, find(kind.substr(4)));
  } else {
    return fail(Code::kInvalidArgument,
                "transfer \"{}\": \"{}\" is not push, pull, via-MEMORY or send", text, kind);
  }
  return transfer;
}

Result<std::vector<Transfer>> parse_transfers(const Topology& topology, std::string_view text) {
  std::vector<Transfer> transfers;
  if (text.empty()) return transfers;
  for (const std::string_view item : split_at(text, ',')) {
    JIGE_TRY(const Transfer transfer, parse_transfer(topology, item));
    transfers.push_back(transfer);
  }
  return transfers;
}

}  // namespace jige::topology
