#include "serve/layer_holder.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "formats/folder_digest.h"
#include "tensor/cpu_device.h"

namespace jige::serve {
namespace {

constexpr double kWordS = 10;     // for the first word of who has connected
constexpr double kFarewellS = 2;  // to tell somebody of an error
constexpr double kForEverS = 1e9;
constexpr double kAcceptS = 3600;

LayerComputer computer_of(Device& device, const LayerHolderOptions& options) {
  JIGE_CHECK(options.gpu.has_value() == (device.kind() == DeviceKind::kCuda),
             "{} holds layers as another kind of device", device.name());
  if (options.gpu) return *options.gpu;
  return processor_as_computer(dynamic_cast<CpuDevice&>(device).team().size());
}

}  // namespace

LayerHolder::LayerHolder(Device& device, const LayerHolderOptions& options, LayerGreeting greeting)
    : device_(device), options_(options), greeting_(std::move(greeting)) {}

Result<std::unique_ptr<LayerHolder>> LayerHolder::create(Device& device,
                                                         const LayerHolderOptions& options) {
  LayerGreeting greeting{
      .digest = {}, .memory_bytes = options.memory_bytes, .computer = computer_of(device, options)};
  JIGE_TRY(greeting.digest, formats::folder_digest(options.folder));
  return std::unique_ptr<LayerHolder>(new LayerHolder(device, options, std::move(greeting)));
}

Result<std::unique_ptr<LayerHolder>> LayerHolder::listen(Device& device,
                                                         const LayerHolderOptions& options) {
  JIGE_TRY(auto holder, create(device, options));
  JIGE_TRY(holder->listener_, comm::Listener::open(options.listen));
  return holder;
}

Status LayerHolder::serve(const std::atomic<bool>& cancelled,
                          const std::function<void(const Event&)>& on_event) {
  while (!cancelled) {
    auto socket = listener_->accept({}, comm::Deadline::after(kAcceptS).unless(&cancelled));
    if (cancelled) break;
    if (!socket) {
      if (socket.error().code == Code::kUnavailable) continue;  // nobody came
      return tl::unexpected(std::move(socket.error()));
    }
    watch_peer(*socket);
    serve_one(*socket, cancelled, on_event);
  }
  return {};
}

void LayerHolder::serve_one(comm::Socket& socket, const std::atomic<bool>& cancelled,
                            const std::function<void(const Event&)>& on_event) {
  Event end{.kind = Event::Kind::kReleased, .peer = socket.peer()};
  if (const Status ended = converse(socket, cancelled, on_event, &end); !ended) {
    // Who has gone hears nothing of it.
    (void)send_text(socket, LayerMessage::kError, error_text(ended.error()),
                    comm::Deadline::after(kFarewellS));
    end.reason = ended.error().message;
  }
  if (end.layer_end > end.layer_begin || !end.reason.empty()) on_event(end);
}

Result<std::unique_ptr<model::InferenceModel>> LayerHolder::hold(const std::string& text,
                                                                 const std::string& peer) const {
  JIGE_TRY(model::InferenceOptions options, parse_hold(text, peer));
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(options_.folder));
  if (options.layers.begin < 0 || options.layers.begin >= options.layers.end ||
      options.layers.end > config.layer_count || !model::can_divide_layers(config)) {
    return fail(Code::kInvalidArgument, "{} asks for layers {} to {} of {}", peer,
                options.layers.begin, options.layers.end, config.layer_count);
  }
  options.memory_bytes_max = options_.memory_bytes;
  return model::InferenceModel::load(options_.folder, device_, options);
}

Status LayerHolder::converse(comm::Socket& socket, const std::atomic<bool>& cancelled,
                             const std::function<void(const Event&)>& on_event, Event* end) {
  const auto within = [&](double seconds) {
    return comm::Deadline::after(seconds).unless(&cancelled);
  };
  if (options_.lent) options_.lent->clear();  // those of a conversation before
  JIGE_DO(send_text(socket, LayerMessage::kGreeting, greeting_text(greeting_), within(kWordS)));
  JIGE_TRY(const std::string wanted, receive_text(socket, LayerMessage::kHold, within(kWordS)));
  JIGE_TRY(const auto layers, hold(wanted, socket.peer()));
  const Json held{{"bytes", layers->peak_bytes()}, {"seconds", layers->load_seconds()}};
  JIGE_DO(send_text(socket, LayerMessage::kHeld, dump_json(held), within(kWordS)));
  end->layer_begin = layers->sizes().layers.begin;
  end->layer_end = layers->sizes().layers.end;
  Event begun = *end;
  begun.kind = Event::Kind::kHolding;
  begun.bytes = layers->peak_bytes();
  on_event(begun);
  while (true) {
    std::byte bytes[kLayerHeaderBytes];
    // Who has nothing more to ask goes, between two messages.
    if (const Status next = socket.recv_all(bytes, within(kForEverS)); !next) {
      if (cancelled) return fail(Code::kCancelled, "stopped by its user");
      return {};
    }
    JIGE_TRY(const LayerHeader header, read_layer_header(bytes, socket.peer()));
    if (header.kind == LayerMessage::kRows) {
      JIGE_DO(answer_rows(socket, *layers, header.bytes, within(kForEverS), end));
    } else if (header.kind == LayerMessage::kCopy && header.bytes == kLayerCopyBytes) {
      std::byte words[kLayerCopyBytes];
      JIGE_DO(socket.recv_all(words, within(kForEverS)));
      JIGE_TRY(const LayerCopy copy, parse_copy(words, socket.peer()));
      JIGE_DO(copy.is_state ? layers->copy_state(copy.src, copy.dst)
                            : layers->copy_block(copy.src, copy.dst));
    } else {
      return fail(Code::kCorrupt, "{} sent a message that is not awaited", socket.peer());
    }
  }
}

Status LayerHolder::answer_rows(comm::Socket& socket, model::InferenceModel& layers, int64_t bytes,
                                comm::Deadline deadline, Event* end) {
  const int64_t sent = options_.lent ? 0 : layers.architecture().stream_columns() * 4;
  const model::InferenceSizes& sizes = layers.sizes();
  JIGE_DO(read_sequences(
      bytes, sizes.batch_tokens_max, sizes.context_max, sent, socket.peer(),
      [&](std::span<std::byte> part) { return socket.recv_all(part, deadline); }, &sequences_));
  end->rows += sequences_.row_count;
  return options_.lent ? answer_lent(socket, layers, deadline)
                       : answer_sent(socket, layers, deadline);
}

Status LayerHolder::answer_sent(comm::Socket& socket, model::InferenceModel& layers,
                                comm::Deadline deadline) {
  const TensorView rows = layers.layer_rows(sequences_.row_count);
  const auto count = static_cast<size_t>(rows.count());
  JIGE_DO(socket.recv_all(std::as_writable_bytes(std::span(rows.as<float>(), count)), deadline));
  JIGE_TRY(const TensorView done, layers.run_layers(sequences_.sequences, rows));
  if (options_.before_answer) options_.before_answer();
  JIGE_DO(socket.send_all(layer_header(LayerMessage::kDone, done.count() * 4), deadline));
  return socket.send_all(std::as_bytes(std::span(done.as<float>(), count)), deadline);
}

Status LayerHolder::answer_lent(comm::Socket& socket, model::InferenceModel& layers,
                                comm::Deadline deadline) {
  const std::optional<LentRows::Rows> rows = options_.lent->take();
  JIGE_CHECK(rows && rows->view.rows() == sequences_.row_count, "rows that nobody lent");
  using Memory = model::InferenceModel::RowsMemory;
  JIGE_TRY(const TensorView done,
           layers.run_layers(sequences_.sequences, rows->view,
                             rows->are_pinned ? Memory::kPinned : Memory::kAny));
  if (done.data != rows->view.data) {
    std::memcpy(rows->view.data, done.data, static_cast<size_t>(done.count()) * 4);
  }
  if (options_.before_answer) options_.before_answer();
  return socket.send_all(layer_header(LayerMessage::kDone, 0), deadline);
}

}  // namespace jige::serve
