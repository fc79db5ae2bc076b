#include "comm/flow.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/reduce.h"

namespace jige::comm {
namespace {

constexpr int64_t kGrainBytes = 64 << 10;  // reduced before other flows have their turn
constexpr int64_t kStallNs = 100'000'000;  // without movement, before causes are looked for

int64_t floor_units(int64_t bytes) { return bytes / kUnitBytes * kUnitBytes; }

// One flow on its way.
class Runner {
 public:
  Runner(const FlowContext& context, Flow& flow) : context_(context), flow_(flow) {
    header_sent_ = !flow.out.has_value();
    header_seen_ = !flow.in.has_value();
    load();
  }

  bool done() const { return index_ == flow_.step_count && header_sent_ && header_seen_; }

  // Goes on until nothing moves; whether anything has.
  Result<bool> advance();
  // What it waits for, after advance().
  void list_wants(std::vector<Want>& wants) const {
    if (wants_in_) wants.push_back({*flow_.in, true});
    if (wants_out_) wants.push_back({*flow_.out, false});
  }

 private:
  Transport& transport() { return *context_.transport; }
  void load();
  void finish_step();
  Result<bool> send_header();
  Result<bool> see_header();
  Result<bool> pass_on();
  Result<bool> receive();
  Result<bool> receive_combining();
  Result<bool> receive_plain();
  Result<bool> send();
  int64_t real_bytes(int64_t from, int64_t bytes) const {
    return std::clamp<int64_t>(step_.bytes - from, 0, bytes);
  }
  int64_t elements(int64_t bytes) const { return bytes / dtype_info(context_.dtype).block_bytes; }

  const FlowContext& context_;
  Flow& flow_;
  int64_t index_ = 0;
  Step step_;
  int64_t wire_ = 0;  // bytes of the step on a link, whole units
  int64_t got_ = 0;
  int64_t sent_ = 0;
  bool header_sent_ = false;
  bool header_seen_ = false;
  bool wants_in_ = false;
  bool wants_out_ = false;
};

void Runner::load() {
  if (index_ == flow_.step_count) return;
  step_ = flow_.step(index_);
  wire_ = whole_units(step_.bytes);
  got_ = sent_ = 0;
  const bool copies = !step_.receive && step_.store != nullptr && step_.store != step_.local;
  if (copies && step_.bytes > 0) {
    std::memcpy(step_.store, step_.local, static_cast<size_t>(step_.bytes));
  }
}

void Runner::finish_step() {
  if (context_.on_final && step_.final_range.count > 0) {
    context_.on_final(step_.final_range.begin, step_.final_range.count);
  }
  ++index_;
  load();
}

Result<bool> Runner::advance() {
  bool moved = false;
  wants_in_ = wants_out_ = false;
  for (;;) {
    bool now = false;
    if (!header_sent_) {
      JIGE_TRY(now, send_header());
      if (!now) return moved;
      moved = true;
    }
    const bool receives = index_ < flow_.step_count && step_.receive;
    if (!header_seen_ && (receives || index_ == flow_.step_count)) {
      JIGE_TRY(now, see_header());
      if (!now) return moved;
    }
    moved = moved || now;
    if (index_ == flow_.step_count) return moved;
    if (step_.receive && step_.send && step_.store == nullptr) {
      JIGE_TRY(now, pass_on());
    } else {
      JIGE_TRY(const bool received, receive());
      JIGE_TRY(const bool sent, send());
      now = received || sent;
    }
    const bool whole = (!step_.receive || got_ == wire_) && (!step_.send || sent_ == wire_);
    if (whole) finish_step();
    if (!now && !whole) return moved;
    moved = true;
  }
}

Result<bool> Runner::send_header() {
  const auto bytes = encode_header(flow_.out_header);
  JIGE_TRY(const int64_t written, transport().write(*flow_.out, bytes));
  header_sent_ = written > 0;
  wants_out_ = !header_sent_;
  return header_sent_;
}

Result<bool> Runner::see_header() {
  JIGE_TRY(const std::span<const std::byte> in, transport().ready(*flow_.in));
  wants_in_ = in.empty();
  if (in.empty()) return false;
  const auto got = parse_header(in.first<kHeaderBytes>());
  const std::string peer = transport().name(flow_.in->peer);
  if (!got) return with_context(got.error(), "{}", peer);
  JIGE_DO(compare_headers(flow_.in_header, *got, peer));
  transport().consume(*flow_.in, kUnitBytes);
  header_seen_ = true;
  return true;
}

// Combines straight from one link into the other.
Result<bool> Runner::pass_on() {
  JIGE_TRY(const std::span<const std::byte> in, transport().ready(*flow_.in));
  JIGE_TRY(const std::span<std::byte> out, transport().room(*flow_.out));
  const auto bytes = std::min({static_cast<int64_t>(in.size()), static_cast<int64_t>(out.size()),
                               wire_ - got_, kGrainBytes});
  wants_in_ = in.empty();
  wants_out_ = out.empty();
  if (bytes == 0) return false;
  combine(context_.dtype, context_.redop, in.data(), step_.local + got_, out.data(),
          elements(real_bytes(got_, bytes)));
  transport().consume(*flow_.in, bytes);
  JIGE_DO(transport().commit(*flow_.out, bytes));
  got_ += bytes;
  sent_ += bytes;
  return true;
}

Result<bool> Runner::receive() {
  wants_in_ = false;
  if (!step_.receive || got_ == wire_) return false;
  const int64_t before = got_;
  if (step_.local != nullptr) {
    JIGE_TRY([[maybe_unused]] const bool came, receive_combining());
  } else {
    JIGE_TRY([[maybe_unused]] const bool came, receive_plain());
  }
  wants_in_ = got_ == before;
  return got_ > before;
}

Result<bool> Runner::receive_combining() {
  JIGE_TRY(const std::span<const std::byte> in, transport().ready(*flow_.in));
  const int64_t bytes = std::min({static_cast<int64_t>(in.size()), wire_ - got_, kGrainBytes});
  if (bytes == 0) return false;
  const int64_t count = elements(real_bytes(got_, bytes));
  std::byte* store = step_.store + got_;
  combine(context_.dtype, context_.redop, in.data(), step_.local + got_, store, count);
  if (step_.last_addition && context_.redop == RedOp::kAvg) {
    divide(context_.dtype, store, count, transport().size());
  }
  transport().consume(*flow_.in, bytes);
  got_ += bytes;
  return true;
}

Result<bool> Runner::receive_plain() {
  const int64_t whole = floor_units(step_.bytes);
  if (got_ < whole) {
    // In grains where the same bytes go on, so that they go on early and are still in the cache.
    const int64_t limit = step_.send ? std::min(whole, got_ + kGrainBytes) : whole;
    JIGE_TRY(const int64_t came,
             transport().read(*flow_.in, {step_.store + got_, static_cast<size_t>(limit - got_)}));
    got_ += came;
    if (got_ < whole) return came > 0;
  }
  if (got_ == wire_) return true;
  JIGE_TRY(const std::span<const std::byte> in, transport().ready(*flow_.in));
  if (in.empty()) return false;
  std::memcpy(step_.store + got_, in.data(), static_cast<size_t>(step_.bytes - got_));
  transport().consume(*flow_.in, kUnitBytes);
  got_ += kUnitBytes;
  return true;
}

Result<bool> Runner::send() {
  wants_out_ = false;
  const int64_t limit = step_.receive ? got_ : wire_;
  if (!step_.send || sent_ == limit) return false;
  const std::byte* from = step_.store != nullptr ? step_.store : step_.local;
  const int64_t before = sent_;
  const int64_t whole = std::min(limit, floor_units(step_.bytes));
  if (sent_ < whole) {
    JIGE_TRY(const int64_t gone,
             transport().write(*flow_.out, {from + sent_, static_cast<size_t>(whole - sent_)}));
    sent_ += gone;
  }
  if (sent_ >= floor_units(step_.bytes) && sent_ < limit) {
    JIGE_TRY(const std::span<std::byte> out, transport().room(*flow_.out));
    if (!out.empty()) {
      const auto rest = static_cast<size_t>(step_.bytes - sent_);
      std::memcpy(out.data(), from + sent_, rest);
      std::memset(out.data() + rest, 0, static_cast<size_t>(kUnitBytes) - rest);
      JIGE_DO(transport().commit(*flow_.out, kUnitBytes));
      sent_ += kUnitBytes;
    }
  }
  wants_out_ = sent_ < limit;
  return sent_ > before;
}

// Whether any flow has moved; lists what the others wait for.
Result<bool> advance_all(std::vector<Runner>& runners, std::vector<Want>& wants) {
  bool moved = false;
  wants.clear();
  for (Runner& runner : runners) {
    if (runner.done()) continue;
    JIGE_TRY(const bool now, runner.advance());
    moved = moved || now;
    if (!runner.done()) runner.list_wants(wants);
  }
  return moved;
}

Status run_to_end(const FlowContext& context, std::vector<Runner>& runners) {
  Transport& transport = *context.transport;
  std::vector<Want> wants;
  const auto done = [](const Runner& runner) { return runner.done(); };
  int64_t moved_ns = monotonic_ns();
  for (;;) {
    JIGE_TRY(const bool moved, advance_all(runners, wants));
    if (std::all_of(runners.begin(), runners.end(), done)) break;
    if (moved) {
      moved_ns = monotonic_ns();
      continue;
    }
    const Deadline end = Deadline::at_ns(moved_ns + static_cast<int64_t>(context.timeout_s * 1e9));
    const Deadline stall = Deadline::at_ns(monotonic_ns() + kStallNs);
    JIGE_DO(transport.wait(wants, end.earlier(stall)));
    if (stall.passed() && context.on_stall) JIGE_DO(context.on_stall());
    if (!end.passed()) continue;
    JIGE_TRY(const bool at_last, advance_all(runners, wants));
    if (!at_last) return tl::unexpected<Error>(transport.timeout_error(wants, context.timeout_s));
    moved_ns = monotonic_ns();
  }
  return transport.flush(Deadline::after(context.timeout_s));
}

}  // namespace

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
  std::vector<Runner> runners;
  runners.reserve(flows.size());
  for (Flow& flow : flows) runners.emplace_back(context, flow);
  Status ran = run_to_end(context, runners);
  if (!ran) context.transport->abort(ran.error());
  return ran;
}

}  // namespace jige::comm
