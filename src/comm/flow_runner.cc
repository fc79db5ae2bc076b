#include "comm/flow_runner.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace jige::comm {
namespace {

constexpr int64_t kGrainBytes = 64 << 10;  // that go on before more are received
constexpr int64_t kTurnBytes = 4 << 20;    // about so many before other flows have their turn

int64_t floor_units(int64_t bytes) { return bytes / kUnitBytes * kUnitBytes; }

}  // namespace

FlowRunner::FlowRunner(const FlowContext& context, const Flow& flow)
    : context_(context), flow_(flow) {
  header_sent_ = !flow.out.has_value();
  header_seen_ = !flow.in.has_value();
  load();
}

void FlowRunner::list_wants(std::vector<Want>& wants) const {
  if (wants_in_) wants.push_back({*flow_.in, true});
  if (wants_out_) wants.push_back({*flow_.out, false});
}

int64_t FlowRunner::real_bytes(int64_t from, int64_t bytes) const {
  return std::clamp<int64_t>(step_.bytes - from, 0, bytes);
}

void FlowRunner::load() {
  if (index_ == flow_.step_count) return;
  step_ = flow_.step(index_);
  wire_ = whole_units(step_.bytes);
  got_ = sent_ = 0;
  const bool copies = !step_.receive && step_.store != nullptr && step_.store != step_.local;
  if (copies && step_.bytes > 0) {
    std::memcpy(step_.store, step_.local, static_cast<size_t>(step_.bytes));
  }
}

void FlowRunner::finish_step() {
  if (context_.on_final && step_.final_range.count > 0) {
    context_.on_final(step_.final_range.begin, step_.final_range.count);
  }
  ++index_;
  if (flow_.progress) ++*flow_.progress;
  load();
}

Result<bool> FlowRunner::advance() {
  bool moved = false;
  wants_in_ = wants_out_ = false;
  // A peer that keeps up would hold the thread for as long as there are bytes.
  for (turn_bytes_ = 0; turn_bytes_ < kTurnBytes;) {
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
    if (index_ == flow_.step_count || held()) return moved;
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
  return moved;
}

Result<bool> FlowRunner::send_header() {
  const auto bytes = encode_header(flow_.out_header);
  JIGE_TRY(const int64_t written, transport().write(*flow_.out, bytes));
  header_sent_ = written > 0;
  wants_out_ = !header_sent_;
  return header_sent_;
}

Result<bool> FlowRunner::see_header() {
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
Result<bool> FlowRunner::pass_on() {
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
  turn_bytes_ += bytes;
  return true;
}

Result<bool> FlowRunner::receive() {
  wants_in_ = false;
  if (!step_.receive || got_ == wire_) return false;
  const int64_t before = got_;
  if (step_.local != nullptr) {
    JIGE_TRY([[maybe_unused]] const bool came, receive_combining());
  } else {
    JIGE_TRY([[maybe_unused]] const bool came, receive_plain());
  }
  wants_in_ = got_ == before;
  turn_bytes_ += got_ - before;
  return got_ > before;
}

Result<bool> FlowRunner::receive_combining() {
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

Result<bool> FlowRunner::receive_plain() {
  const int64_t whole = floor_units(step_.bytes);
  if (got_ < whole) {
    // In grains where the same bytes go on, so that they go on early and are still in the cache.
    const int64_t limit = std::min(whole, got_ + (step_.send ? kGrainBytes : kTurnBytes));
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

Result<bool> FlowRunner::send() {
  wants_out_ = false;
  const int64_t limit = step_.receive ? got_ : wire_;
  if (!step_.send || sent_ == limit) return false;
  const std::byte* from = step_.store != nullptr ? step_.store : step_.local;
  const int64_t before = sent_;
  const int64_t whole = std::min({limit, floor_units(step_.bytes), sent_ + kTurnBytes});
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
  turn_bytes_ += sent_ - before;
  return sent_ > before;
}

}  // namespace jige::comm
