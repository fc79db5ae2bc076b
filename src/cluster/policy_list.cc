#include "cluster/policy_list.h"

#include <optional>

namespace jige::cluster {
namespace {

constexpr int64_t kPolicyRound_ns = 300 * kSecond;

struct Parts {
  OrderKind order = OrderKind::kFifo;
  Admission admission = Admission::kSkip;
  std::optional<PlacementKind> blind;  // nothing: contention or learned
  bool learned = false;
  bool greedy = false;
};

std::optional<OrderKind> order_named(std::string_view name) {
  for (int i = 0; i < kOrderKindCount; ++i) {
    if (order_name(static_cast<OrderKind>(i)) == name) return static_cast<OrderKind>(i);
  }
  return std::nullopt;
}

std::optional<Admission> admission_named(std::string_view name) {
  if (name == "strict") return Admission::kStrict;
  if (name == "skip") return Admission::kSkip;
  if (name == "easy") return Admission::kEasy;
  return std::nullopt;
}

bool read_placement(std::string_view name, Parts& parts) {
  parts.blind = std::nullopt;
  parts.learned = name == "learned";
  if (parts.learned || name == "contention") return true;
  for (int i = 0; i < kPlacementKindCount; ++i) {
    const auto kind = static_cast<PlacementKind>(i);
    if (placement_name(kind) == name) parts.blind = kind;
  }
  return parts.blind.has_value();
}

std::optional<Parts> parse(std::string_view name) {
  Parts parts{.blind = PlacementKind::kSpan};
  const size_t slash = name.find('/');
  const std::string_view front = name.substr(0, slash);
  const size_t plus = front.find('+');
  const std::string_view order = front.substr(0, plus);
  parts.learned = order == "learned";
  parts.greedy = parts.learned || order == "greedy";
  if (parts.greedy) parts.blind = std::nullopt;
  const std::optional<OrderKind> kind = parts.greedy ? OrderKind::kSrsf : order_named(order);
  if (!kind) return std::nullopt;
  parts.order = *kind;
  if (*kind == OrderKind::kFifo) parts.admission = Admission::kStrict;
  if (plus != std::string_view::npos) {
    const std::optional<Admission> admission = admission_named(front.substr(plus + 1));
    if (!admission) return std::nullopt;
    parts.admission = *admission;
  }
  if (slash != std::string_view::npos && !read_placement(name.substr(slash + 1), parts)) {
    return std::nullopt;
  }
  return parts;
}

QueueOptions queue_options(const Parts& parts) {
  if (parts.greedy) {
    QueueOptions options = greedy_queue_options();
    options.admission = parts.admission;
    return options;
  }
  QueueOptions options{.admission = parts.admission};
  const bool in_rounds = parts.order == OrderKind::kLas || parts.order == OrderKind::kGittins ||
                         parts.order == OrderKind::kMaxMin || parts.order == OrderKind::kFinishTime;
  const bool at_once = parts.order == OrderKind::kSrtf || parts.order == OrderKind::kSrsf;
  options.preemptive = in_rounds || at_once;
  options.preempt_in_rounds = in_rounds;
  if (in_rounds) options.round_ns = kPolicyRound_ns;
  if (parts.blind) return options;
  if (options.round_ns == 0) options.round_ns = kPolicyRound_ns;
  return options;
}

}  // namespace

QueueOptions greedy_queue_options() {
  return {.preemptive = true,
          .round_ns = kPolicyRound_ns,
          .urgent_factor = 20,
          .urgent_min_ns = 24 * 3600 * kSecond,
          .deadlines = LatenessOptions{},
          .shape_margin = 1.5};
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, std::string_view flag,
                                            const PolicyContext& context) {
  const std::optional<Parts> parts = parse(name);
  if (!parts) {
    std::string orders = "greedy, learned";
    for (int i = 0; i < kOrderKindCount; ++i) {
      orders += fmt::format(", {}", order_name(static_cast<OrderKind>(i)));
    }
    return fail(Code::kInvalidArgument,
                "{}: \"{}\" is no policy; give ORDER[+ADMISSION][/PLACEMENT] with an order of {}, "
                "an admission of strict, skip, easy, and a placement of pack, span, best-fit, "
                "random, contention, learned",
                flag, name, orders);
  }
  const LengthEstimates lengths{.noise = context.noise, .seed = context.seed};
  OrderOptions order{.kind = parts->order, .lengths = lengths};
  order.history_gpu_s = context.history_gpu_s;
  std::unique_ptr<Placer> placer;
  if (parts->blind) {
    placer = make_blind_placer(*parts->blind, context.seed);
  } else {
    const bool knows_lengths =
        parts->order == OrderKind::kSjf || parts->order == OrderKind::kSrtf ||
        parts->order == OrderKind::kSrsf || parts->order == OrderKind::kFinishTime;
    if (parts->learned && !context.network) {
      return fail(Code::kInvalidArgument, "{}: {} needs a trained policy; give --learned FILE",
                  flag, name);
    }
    const ContentionPlacerOptions greedy{.knows_lengths = knows_lengths, .lengths = lengths};
    if (parts->learned) {
      placer = std::make_unique<LearnedPlacer>(context.network, LearnedOptions{.greedy = greedy});
    } else {
      placer = make_contention_placer(greedy);
    }
  }
  QueueOptions queue = queue_options(*parts);
  queue.lengths = lengths;
  if (queue.deadlines) queue.deadlines->lengths = lengths;
  return std::make_unique<QueuePolicy>(queue, make_order(order), std::move(placer));
}

}  // namespace jige::cluster
