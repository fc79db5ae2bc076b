#include "serve/layer_group.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/folder_digest.h"
#include "serve/layer_division.h"

namespace jige::serve {
namespace {

constexpr double kHoldS = 3600;  // to load layers from a slow disk
constexpr double kRowsS = 600;   // to compute a piece; a machine that has gone is noticed earlier
// A piece with fewer rows would take as long to read weights as to multiply them.
constexpr int64_t kPieceRowsMin = 64;
constexpr int64_t kPiecesOfMachine = 4;

Error lost_layers(Error error) {
  error.message = "layers on another machine are lost: " + error.message;
  return error;
}

}  // namespace

comm::Deadline LayerGroup::within(double seconds) const {
  return comm::Deadline::after(seconds).unless(options_.cancelled);
}

Status LayerGroup::add(comm::Socket socket, LocalHolder* local, const std::string& folder,
                       const std::string& digest, comm::Deadline deadline) {
  const std::string name = socket.peer();
  auto link = std::make_unique<Link>();
  link->socket = std::move(socket);
  link->local = local;
  auto text = receive_text(link->socket, LayerMessage::kGreeting, deadline);
  if (!text) {
    return with_context(std::move(text.error()), "layers on {} (it serves one program at a time)",
                        name);
  }
  JIGE_TRY(const LayerGreeting greeting, parse_greeting(*text, name));
  if (greeting.digest != digest) {
    return fail(Code::kInvalidArgument,
                "{} holds another model than {}: give `jige layers` there a copy of this folder",
                name, folder);
  }
  const std::string own = options_.gpu ? options_.gpu->kernels : isa_name(active_isa());
  if (greeting.computer.kernels != own) {
    log_warn(
        "{} computes with {}, here it is {}: answers may differ in last bits from those of one "
        "machine",
        name, greeting.computer.kernels, own);
  }
  holders_.push_back({.name = name, .greeting = greeting});
  links_.push_back(std::move(link));
  return {};
}

Result<std::unique_ptr<LayerGroup>> LayerGroup::connect(const std::string& folder,
                                                        const LayerGroupOptions& options) {
  JIGE_TRY(const std::string digest, formats::folder_digest(folder));
  std::unique_ptr<LayerGroup> group(new LayerGroup(options));
  for (const auto& holder : options.local) {
    JIGE_TRY(comm::Socket socket, holder->connect());
    JIGE_DO(group->add(std::move(socket), holder.get(), folder, digest,
                       group->within(options.connect_s)));
  }
  for (const comm::Address& address : options.holders) {
    const comm::Deadline deadline = group->within(options.connect_s);
    auto socket = comm::connect_to(address, {}, deadline);
    if (!socket) {
      return with_context(std::move(socket.error()),
                          "layers on {} (is `jige layers` running there?)", address.text());
    }
    socket->rename(address.text());
    watch_peer(*socket);
    JIGE_DO(group->add(std::move(*socket), nullptr, folder, digest, deadline));
  }
  return group;
}

Status LayerGroup::ask(model::InferenceSizes sizes, const std::vector<model::LayerRange>& ranges) {
  JIGE_CHECK(ranges.size() == links_.size(), "{} ranges for {} holders", ranges.size(),
             links_.size());
  sizes.batch_tokens_max = piece_rows_max(sizes.batch_tokens_max);
  std::vector<std::unique_ptr<Link>> kept;
  std::vector<Holder> holders;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (ranges[i].begin >= ranges[i].end) continue;
    sizes.layers = ranges[i];
    JIGE_DO(send_text(links_[i]->socket, LayerMessage::kHold, hold_text(sizes), within(kHoldS)));
    kept.push_back(std::move(links_[i]));
    holders.push_back(std::move(holders_[i]));
  }
  links_ = std::move(kept);
  holders_ = std::move(holders);
  return {};
}

Result<std::vector<int64_t>> LayerGroup::wait_until_held() {
  std::vector<int64_t> bytes;
  for (const auto& link : links_) {
    JIGE_TRY(const std::string text,
             receive_text(link->socket, LayerMessage::kHeld, within(kHoldS)));
    JIGE_TRY(const Json json, parse_json(text, link->socket.peer()));
    JIGE_TRY(const int64_t taken, get_int(json, "bytes", link->socket.peer()));
    bytes.push_back(taken);
  }
  start_threads();
  return bytes;
}

void LayerGroup::start_threads() {
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i]->sender = std::thread([this, i] { send_words(i); });
    links_[i]->receiver = std::thread([this, i] { receive_rows(i); });
  }
}

LayerGroup::~LayerGroup() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (const auto& link : links_) {
    if (link->sender.joinable()) link->sender.join();
    if (link->receiver.joinable()) link->receiver.join();
  }
}

std::optional<Error> LayerGroup::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void LayerGroup::lose(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_ && !ending_) error_ = std::move(error);
  }
  changed_.notify_all();
}

LayerGroup::WordRef LayerGroup::next_of(std::deque<WordRef>& queue) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || error_ || !queue.empty(); });
  if (ending_ || error_) return nullptr;
  WordRef word = std::move(queue.front());
  queue.pop_front();
  return word;
}

Status LayerGroup::send(Link& link, const Word& word, comm::Deadline deadline) {
  if (link.local && word.rows) {
    link.local->rows().lend({.view = word.rows, .are_pinned = options_.gpu.has_value()});
    return link.socket.send_all(word.lent_head, deadline);
  }
  JIGE_DO(link.socket.send_all(word.head, deadline));
  if (!word.rows) return {};
  const auto count = static_cast<size_t>(word.rows.count());
  return link.socket.send_all(std::as_bytes(std::span(word.rows.as<float>(), count)), deadline);
}

void LayerGroup::send_words(size_t index) {
  Link& link = *links_[index];
  while (const WordRef word = next_of(link.to_send)) {
    const comm::Deadline deadline = comm::Deadline::after(kRowsS).unless(&ending_);
    if (word->rows) {
      const std::lock_guard lock(mutex_);
      link.awaited.push_back(word);
    }
    changed_.notify_all();
    Status sent = send(link, *word, deadline);
    if (!sent) return lose(lost_layers(std::move(sent.error())));
    if (!word->rows) continue;  // others may be sending the same copy
    {
      const std::lock_guard lock(mutex_);
      word->is_sent = true;
    }
    changed_.notify_all();
  }
}

void LayerGroup::wait_until_sent(const Word& word) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || error_ || word.is_sent; });
}

void LayerGroup::receive_rows(size_t index) {
  Link& link = *links_[index];
  const auto receive = [&](const Word& word) -> Status {
    const comm::Deadline deadline = comm::Deadline::after(kRowsS).unless(&ending_);
    std::byte bytes[kLayerHeaderBytes];
    JIGE_DO(link.socket.recv_all(bytes, deadline));
    JIGE_TRY(const LayerHeader header, read_layer_header(bytes, link.socket.peer()));
    if (header.kind == LayerMessage::kError && header.bytes <= kLayerTextBytesMax) {
      std::string text(static_cast<size_t>(header.bytes), '\0');
      JIGE_DO(link.socket.recv_all(std::as_writable_bytes(std::span(text)), deadline));
      return tl::unexpected(parse_layer_error(text, link.socket.peer()));
    }
    const size_t count = link.local ? 0 : static_cast<size_t>(word.rows.count());
    if (header.kind != LayerMessage::kDone || header.bytes != static_cast<int64_t>(count) * 4) {
      return fail(Code::kCorrupt, "{} answered {} bytes where {} were awaited", link.socket.peer(),
                  header.bytes, count * 4);
    }
    wait_until_sent(word);
    if (link.local) return {};  // it has written them
    return link.socket.recv_all(std::as_writable_bytes(std::span(word.rows.as<float>(), count)),
                                deadline);
  };
  while (const WordRef word = next_of(link.awaited)) {
    if (Status received = receive(*word); !received)
      return lose(lost_layers(std::move(received.error())));
    {
      const std::lock_guard lock(mutex_);
      if (index + 1 < links_.size()) {
        word->is_sent = false;
        links_[index + 1]->to_send.push_back(word);
      } else {
        ++finished_;
      }
    }
    changed_.notify_all();
  }
}

int64_t LayerGroup::fixed_piece_rows() const {
  if (options_.piece_rows > 0) return options_.piece_rows;
  const auto is_gpu = [](const Holder& holder) { return holder.greeting.computer.is_gpu; };
  return options_.gpu || std::ranges::any_of(holders_, is_gpu) ? kGpuPieceRows : 0;
}

int64_t LayerGroup::piece_rows(int64_t rows) const {
  if (const int64_t fixed = fixed_piece_rows(); fixed > 0) return fixed;
  const int64_t machines = std::ssize(links_) + 1;
  const int64_t pieces = std::clamp<int64_t>(rows / kPieceRowsMin, 1, kPiecesOfMachine * machines);
  return (rows + pieces - 1) / pieces;
}

int64_t LayerGroup::piece_rows_max(int64_t rows) const {
  const int64_t fixed = fixed_piece_rows();
  return fixed > 0 ? std::min(fixed, rows) : rows;
}

Status LayerGroup::start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows) {
  auto word =
      std::make_shared<Word>(Word{.head = rows_head(sequences, rows.rows(), rows.columns() * 4),
                                  .lent_head = rows_head(sequences, rows.rows(), /*row_bytes=*/0),
                                  .rows = rows});
  {
    const std::lock_guard lock(mutex_);
    if (error_) return tl::unexpected(*error_);
    ++started_;
    links_.front()->to_send.push_back(std::move(word));
  }
  changed_.notify_all();
  return {};
}

Status LayerGroup::finish(int64_t count) {
  std::unique_lock lock(mutex_);
  JIGE_CHECK(count <= started_, "{} pieces are waited for, {} were started", count, started_);
  changed_.wait(lock, [&] { return error_ || finished_ >= count; });
  if (error_) return tl::unexpected(*error_);
  return {};
}

Status LayerGroup::say(LayerCopy copy) {
  auto word = std::make_shared<Word>(Word{.head = copy_message(copy), .lent_head = {}, .rows = {}});
  {
    const std::lock_guard lock(mutex_);
    if (error_) return tl::unexpected(*error_);
    for (const auto& link : links_) link->to_send.push_back(word);
  }
  changed_.notify_all();
  return {};
}

Status LayerGroup::copy_block(int32_t src, int32_t dst) { return say({.src = src, .dst = dst}); }

Status LayerGroup::copy_state(int32_t src, int32_t dst) {
  return say({.is_state = true, .src = src, .dst = dst});
}

}  // namespace jige::serve
