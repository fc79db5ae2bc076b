#include "model/inference.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "model/batch_limits.h"
#include "model/device_support.h"
#include "model/inference_folder.h"
#include "model/inference_sizes.h"
#include "model/weights_layout.h"
#include "ops/draw.h"
#include "ops/elementwise.h"
#include "tensor/cuda_device.h"

namespace jige::model {
namespace {

std::string adapters_text(const InferenceMemory& memory) {
  if (memory.adapters_bytes.empty()) return "";
  return fmt::format(", {} {}", counted(std::ssize(memory.adapters_bytes), "adapter"),
                     format_bytes(memory.adapters_total_bytes()));
}

// What does not fit is refused as a whole, before the first part of it is taken.
Status check_memory(const std::string& folder, const InferenceMemory& needed, int64_t kv_tokens,
                    int64_t limit_bytes) {
  if (needed.total_bytes() <= limit_bytes) return {};
  const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
  return fail(Code::kExhausted,
              "{}: to run takes {} (weights {}{}, keys and values of {} tokens {}, the rest {}), "
              "the memory limit is {}; raise it, or choose a smaller --context, cache or model, "
              "weights of fewer bits (--quantize) or, on a GPU, layers that stream from the host "
              "(--device-memory)",
              folder, format_bytes_up(needed.total_bytes()), shown(needed.weights.total_bytes()),
              adapters_text(needed), kv_tokens, shown(needed.kv_bytes),
              shown(needed.states_bytes + needed.activations_bytes + needed.logits_bytes),
              shown(limit_bytes));
}

bool follow_one_another(std::span<const int32_t> rows) {
  const auto apart = [](int32_t row, int32_t next) { return next != row + 1; };
  return std::ranges::adjacent_find(rows, apart) == rows.end();
}

}  // namespace

Result<std::unique_ptr<InferenceModel>> InferenceModel::load(const std::string& folder,
                                                             Device& device,
                                                             const InferenceOptions& options) {
  const StopWatch watch;
  JIGE_TRY(InferenceFolder opened, open_inference_folder(folder, options.embeds, device.kind()));
  auto& [architecture, files] = opened;
  JIGE_TRY(std::vector<Adapter> adapters, open_adapters(options.adapters, *architecture));
  JIGE_TRY(const DType table_dtype, stored_table_dtype(*architecture, files));
  JIGE_TRY(InferenceSizes sizes,
           inference_sizes_with(adapters, options, *architecture, table_dtype));
  sizes.device = device.kind();
  JIGE_DO(check_device_support(device.kind(), device.name(), *architecture));
  JIGE_DO(check_memory(folder, inference_memory(*architecture, sizes),
                       sizes.kv_block_count * ops::kKvBlockTokens, options.memory_bytes_max));
  std::unique_ptr<InferenceModel> model(
      new InferenceModel(device, *architecture, sizes, options.memory_bytes_max));
  model->own_architecture_ = std::move(architecture);
  JIGE_TRY(model->stream_, device.make_stream());
  JIGE_TRY(model->own_weights_, ModelWeights::create(model->arena_, *model->architecture_,
                                                     inference_weights_options(sizes)));
  model->weights_ = &*model->own_weights_;
  JIGE_DO(model->allocate());
  if (!sizes.streamed_layers.empty()) {
    JIGE_TRY(model->layer_stream_, LayerStream::create(*model->weights_, device));
  }
  JIGE_DO(load_weights(*model->own_weights_, *model->stream_, files, model->layer_stream_.get()));
  if (model->layer_stream_) model->layer_stream_->start();
  for (Adapter& adapter : adapters) {
    JIGE_DO(adapter.load(model->arena_, *model->stream_, sizes.compute, folder));
  }
  model->adapters_ = std::move(adapters);
  JIGE_DO(model->take_rooms(options.adapter_rank_max, folder));
  model->load_seconds_ = watch.seconds();
  return model;
}

Result<std::unique_ptr<InferenceModel>> InferenceModel::borrow(const ModelWeights& weights,
                                                               Device& device,
                                                               const InferenceOptions& options) {
  const StopWatch watch;
  JIGE_TRY(const InferenceSizes sizes,
           borrowed_sizes(options, weights.architecture(), weights.options()));
  std::unique_ptr<InferenceModel> model(
      new InferenceModel(device, weights.architecture(), sizes, options.memory_bytes_max));
  model->weights_ = &weights;
  JIGE_TRY(model->stream_, device.make_stream());
  JIGE_DO(model->allocate());
  JIGE_DO(model->take_rooms(options.adapter_rank_max, {}));
  model->load_seconds_ = watch.seconds();
  return model;
}

InferenceModel::InferenceModel(Device& device, const Architecture& architecture,
                               const InferenceSizes& sizes, int64_t memory_bytes_max)
    : architecture_(&architecture),
      sizes_(sizes),
      arena_(device, device.name() + " inference", memory_bytes_max) {}

Status InferenceModel::allocate() {
  const InferenceBuffers bytes = inference_buffers(*architecture_, sizes_);
  const auto make_bytes = [&](int64_t count) { return arena_.make(DType::kU8, Shape{count}); };
  const Shape rows{sizes_.batch_tokens_max};
  for (Tensor& stream : buffers_.stream) {
    JIGE_TRY(stream, arena_.make(DType::kF32, Shape{rows[0], architecture_->stream_columns()}));
  }
  forwards_.resize(static_cast<size_t>(sizes_.forwards_max));
  for (int64_t i = 2; i < bytes.stream_count; ++i) {
    JIGE_TRY(buffers_.beyond.emplace_back(),
             arena_.make(DType::kF32, Shape{rows[0], architecture_->stream_columns()}));
  }
  for (int64_t i = 0; i < bytes.host_stream_count; ++i) {
    JIGE_TRY(host_streams_.emplace_back(), HostBuffer::make(arena_.device(), bytes.stream_bytes));
  }
  JIGE_TRY(buffers_.workspace, make_bytes(bytes.workspace_bytes));
  JIGE_TRY(buffers_.gathered,
           arena_.make(DType::kF32, Shape{sizes_.logit_rows_max, architecture_->head_columns()}));
  JIGE_TRY(buffers_.results,
           arena_.make(DType::kF32,
                       Shape{sizes_.logit_rows_max, result_columns(*architecture_, sizes_)}));
  JIGE_TRY(buffers_.tokens, arena_.make(DType::kI32, rows));
  JIGE_TRY(buffers_.positions, arena_.make(DType::kI32, rows));
  JIGE_TRY(buffers_.targets, arena_.make(DType::kI32, rows));
  JIGE_TRY(buffers_.losses, arena_.make(DType::kF32, rows));
  JIGE_TRY(buffers_.scores, arena_.make(DType::kF32, draw_scores_shape(sizes_)));
  if (!sizes_.adapters.empty()) {
    JIGE_TRY(buffers_.adapter_product,
             arena_.make(sizes_.compute, Shape{rows[0], sizes_.adapters.product_columns}));
    JIGE_TRY(buffers_.adapter_scratch, make_bytes(bytes.adapter_scratch_bytes));
  }
  if (arena_.device().kind() != DeviceKind::kCpu) {
    const int64_t bytes_max =
        std::max({buffers_.results.view().count(), buffers_.losses.view().count(),
                  buffers_.scores.view().count()}) *
        4;
    JIGE_TRY(host_result_, HostBuffer::make(arena_.device(), bytes_max));
  }
  return allocate_sequences();
}

Status InferenceModel::allocate_sequences() {
  const formats::ModelConfig& model = config();
  const StateShape state = state_shape(model);
  state_tokens_.resize(static_cast<size_t>(sizes_.state_count));
  buffers_.layers.resize(static_cast<size_t>(model.layer_count));
  for (int64_t layer = 0; layer < model.layer_count; ++layer) {
    if (!sizes_.layers.holds_layer(layer)) continue;
    LayerBuffers& buffers = buffers_.layers[static_cast<size_t>(layer)];
    if (formats::is_recurrent(model, layer)) {
      JIGE_TRY(buffers.inputs,
               arena_.make(sizes_.compute, Shape{sizes_.state_count, state.inputs}));
      JIGE_TRY(buffers.matrices,
               arena_.make(DType::kF32, Shape{sizes_.state_count, state.matrices}));
    }
    if (has_cache(model, layer)) {
      const int64_t bytes = cache_bytes(model, layer, sizes_.kv_dtype, sizes_.kv_block_count);
      JIGE_TRY(buffers.kv, arena_.make(DType::kU8, Shape{bytes}));
    }
  }
  return {};
}

Status InferenceModel::take_rooms(int64_t rank_max, const std::string& base_folder) {
  const std::vector<int64_t>& bytes = sizes_.adapters.packed_bytes;
  std::vector<TensorView> views;
  for (size_t i = adapters_.size(); i < bytes.size(); ++i) {
    JIGE_TRY(Tensor room, arena_.make(DType::kU8, Shape{bytes[i]}));
    views.push_back(room.view());
    buffers_.adapter_rooms.push_back(std::move(room));
  }
  rooms_ = std::make_unique<AdapterRooms>(
      AdapterRooms::Options{.rank_max = rank_max,
                            .compute = sizes_.compute,
                            .number_first = static_cast<int32_t>(adapters_.size()),
                            .base_folder = base_folder},
      std::move(views));
  return {};
}

const Adapter* InferenceModel::find_adapter(int32_t number) const {
  if (number < 0) return nullptr;
  const auto index = static_cast<size_t>(number);
  return index < adapters_.size() ? &adapters_[index] : rooms_->find(number);
}

void InferenceModel::put_batch(const InferenceBatch& batch) {
  put_positions(batch);
  batch_.sequences.assign(batch.sequences.begin(), batch.sequences.end());
  given_.assign(batch.given.begin(), batch.given.end());
  batch_.given = given_.data();
  batch_.given_count = given_.size();
  seen_spans(batch_.sequences, batch.mutual, batch_.seen);
  if (sizes_.state_count > 0) {
    for (const ops::SequenceSpan& sequence : batch.sequences) {
      const int64_t context = sequence.context_count;
      state_tokens_[static_cast<size_t>(sequence.state)] = context + sequence.row_count;
      if (!sequence.has_spare()) continue;
      state_tokens_[static_cast<size_t>(sequence.spare)] = context + sequence.spare_rows;
    }
  }
  put_adapters(batch);
}

void InferenceModel::send_batch(const InferenceBatch& batch) {
  const auto send = [&](const Tensor& buffer, std::span<const int32_t> values) {
    const int64_t bytes = std::ssize(values) * 4;
    TensorView view = buffer.view().row_range(0, std::ssize(values));
    if (on_cuda(*stream_)) {
      view.data = const_cast<void*>(as_cuda(*stream_).upload(values.data(), bytes));
    } else {
      stream_->copy(view.data, values.data(), bytes, CopyKind::kHostToDevice);
    }
    return view;
  };
  step_tables_.entries.clear();
  batch_.tables = &step_tables_;
  batch_.tokens = send(buffers_.tokens, batch.tokens);
  batch_.positions = send(buffers_.positions, host_positions_);
}

void InferenceModel::put_adapters(const InferenceBatch& batch) {
  std::vector<AdapterRows>& rows = step_adapters_.rows;
  rows.clear();
  for (size_t i = 0; i < batch.adapters.size(); ++i) {
    if (batch.adapters[i] == kNoAdapter) continue;
    const Adapter* adapter = find_adapter(batch.adapters[i]);
    const int64_t begin = batch.sequences[i].row_begin;
    const int64_t end = begin + batch.sequences[i].row_count;
    if (!rows.empty() && rows.back().adapter == adapter && rows.back().row_end == begin) {
      rows.back().row_end = end;
    } else {
      rows.push_back({.adapter = adapter, .row_begin = begin, .row_end = end});
    }
  }
  step_adapters_.product = buffers_.adapter_product.view();
  step_adapters_.scratch = buffers_.adapter_scratch.view();
}

BlockContext InferenceModel::context(size_t node) {
  BlockContext context{
      .stream = *stream_, .compute = sizes_.compute, .workspace = buffers_.workspace.view()};
  if (!step_adapters_.rows.empty()) context.adapters = &step_adapters_;
  if (node == 0 || node >= architecture_->head_node()) return context;
  const auto index = static_cast<int64_t>(node) - 1;
  if (formats::is_recurrent(config(), index)) {
    const LayerBuffers& own = buffers_.layers[node - 1];
    context.states = {.inputs = own.inputs.view(), .matrices = own.matrices.view()};
  }
  const int64_t source = formats::key_source(config(), index);
  if (const LayerBuffers& layer = buffers_.layers[static_cast<size_t>(source)]; layer.kv) {
    const CacheShape shape = cache_shape(config(), source);
    context.kv_cache = {.data = layer.kv.view().data,
                        .dtype = sizes_.kv_dtype,
                        .block_count = sizes_.kv_block_count,
                        .kv_head_count = shape.kv_head_count,
                        .head_dim = shape.head_dim};
  }
  return context;
}

Status InferenceModel::run_body(const InferenceBatch& batch, Forward& forward) {
  ++forward_count_;
  put_batch(batch);
  forward.logit_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  if (beyond_) return start_divided(batch, forward);
  const auto submit = [&] {
    send_batch(batch);
    forward.rows = run_held(batch_, last_stream(), 0);
    run_ends(forward);
  };
  // Not as a graph where layers are streamed: copies take far longer than launches, and those for
  // the next forward begin before this one ends.
  layer_stream_ ? stream_->run_in_pieces(submit) : stream_->run_repeated(submit);
  return {};
}

Status InferenceModel::end_body(Forward& forward) {
  forward.is_under_way = false;
  if (!beyond_) return {};
  JIGE_DO(beyond_->finish(forward.piece_end));
  const TensorView rows = forward.rows;
  stream_->run_repeated([&] {
    if (on_cuda(*stream_)) {
      forward.rows = last_stream().view().row_range(0, rows.rows());
      stream_->copy(forward.rows.data, rows.data, rows.count() * 4, CopyKind::kHostToDevice);
    }
    run_ends(forward);
  });
  return {};
}

void InferenceModel::run_ends(const Forward& forward) {
  hidden_ = forward.rows.column_range(0, architecture_->head_columns());
  logits_ = {};
  if (forward.logit_rows.empty()) return;
  logits_ = run_head(forward.logit_rows);
  if (forward.draws.empty()) return;
  const TensorView tokens = buffers_.targets.view().row_range(0, logits_.rows());
  const TensorView scores = buffers_.scores.view().row_range(0, logits_.rows());
  ops::draw(*stream_, tokens, scores, logits_, forward.draws);
}

template <typename T>
std::span<const T> InferenceModel::to_host(const TensorView& view) {
  const auto count = static_cast<size_t>(view.count());
  if (stream_->device().kind() == DeviceKind::kCpu) {
    stream_->synchronize();
    return {view.as<T>(), count};
  }
  stream_->copy(host_result_.data(), view.data, view.count() * 4, CopyKind::kDeviceToHost);
  stream_->synchronize();
  return {static_cast<const T*>(host_result_.data()), count};
}

Result<std::span<const float>> InferenceModel::forward(const InferenceBatch& batch) {
  JIGE_TRY(const LogitRows rows, forward_drawn(batch, {}));
  return rows.logits;
}

void InferenceModel::put_draws(std::span<const ops::RowDraw> draws, Forward& forward) {
  forward.draws.assign(draws.begin(), draws.end());
  bool any = false;
  for (ops::RowDraw& draw : forward.draws) {
    if (!ops::can_draw(*stream_, config().vocab_size, draw)) draw = {};
    any = any || draw.kind != ops::RowDraw::kHost;
  }
  if (!any) forward.draws.clear();
}

Result<LogitRows> InferenceModel::forward_drawn(const InferenceBatch& batch,
                                                std::span<const ops::RowDraw> draws) {
  JIGE_TRY(const int32_t number, begin(batch, draws));
  return finish(number);
}

Result<int32_t> InferenceModel::begin(const InferenceBatch& batch,
                                      std::span<const ops::RowDraw> draws) {
  JIGE_CHECK(draws.empty() || draws.size() == batch.logit_rows.size(), "{} draws of {} rows",
             draws.size(), batch.logit_rows.size());
  const auto free = std::ranges::find(forwards_, false, &Forward::is_under_way);
  JIGE_CHECK(free != forwards_.end() && (beyond_ || free == forwards_.begin()),
             "a forward beside {} under way", free - forwards_.begin());
  JIGE_DO(check(batch));
  put_draws(draws, *free);
  JIGE_DO(run_body(batch, *free));
  free->is_under_way = true;
  return static_cast<int32_t>(free - forwards_.begin());
}

Result<LogitRows> InferenceModel::finish(int32_t number) {
  Forward& forward = forwards_.at(static_cast<size_t>(number));
  JIGE_CHECK(forward.is_under_way, "forward {} is not under way", number);
  JIGE_DO(end_body(forward));
  LogitRows rows{.columns = static_cast<size_t>(config().vocab_size)};
  if (!logits_) {
    stream_->synchronize();
    return rows;
  }
  if (forward.draws.empty()) {
    rows.logits = to_host<float>(logits_);
    return rows;
  }
  const auto tokens = to_host<int32_t>(buffers_.targets.view().row_range(0, logits_.rows()));
  drawn_.assign(tokens.begin(), tokens.end());
  for (size_t i = 0; i < forward.draws.size(); ++i) {
    if (forward.draws[i].kind == ops::RowDraw::kHost) drawn_[i] = -1;
  }
  rows.tokens = drawn_;
  rows.logprobs = drawn_logprobs(forward.draws);
  if (std::ranges::find(drawn_, -1) != drawn_.end()) rows.logits = undrawn_to_host();
  return rows;
}

std::span<const float> InferenceModel::drawn_logprobs(std::span<const ops::RowDraw> draws) {
  const auto is_scored = [](const ops::RowDraw& draw) { return draw.is_scored != 0; };
  if (std::ranges::none_of(draws, is_scored)) return {};
  const auto words = to_host<float>(buffers_.scores.view().row_range(0, logits_.rows()));
  drawn_logprobs_.assign(draws.size(), 0);
  for (size_t i = 0; i < draws.size(); ++i) {
    if (drawn_[i] < 0 || !is_scored(draws[i])) continue;
    ops::DrawScore score;
    std::memcpy(&score, words.data() + i * (sizeof score / sizeof(float)), sizeof score);
    drawn_logprobs_[i] = ops::log_probability(score);
  }
  return drawn_logprobs_;
}

std::span<const float> InferenceModel::undrawn_to_host() {
  const auto count = static_cast<size_t>(logits_.count());
  if (stream_->device().kind() == DeviceKind::kCpu) return {logits_.as<float>(), count};
  auto* const host = static_cast<float*>(host_result_.data());
  for (int64_t row = 0; row < logits_.rows(); ++row) {
    if (drawn_[static_cast<size_t>(row)] >= 0) continue;
    stream_->copy(host + row * logits_.columns(), logits_.row_range(row, row + 1).data,
                  logits_.columns() * 4, CopyKind::kDeviceToHost);
  }
  stream_->synchronize();
  return {host, count};
}

TensorView InferenceModel::hidden_rows(std::span<const int32_t> rows) {
  if (follow_one_another(rows)) return hidden_.row_range(rows.front(), rows.back() + 1);
  const TensorView gathered = buffers_.gathered.view().row_range(0, std::ssize(rows));
  ops::select_rows(*stream_, gathered, hidden_, rows);
  return gathered;
}

TensorView InferenceModel::run_head(std::span<const int32_t> rows) {
  JIGE_CHECK(!sizes_.embeds, "logits of a model loaded for embeddings");
  const TensorView logits = buffers_.results.view().row_range(0, std::ssize(rows));
  const size_t node = architecture_->head_node();
  architecture_->head().logits(context(node), weights_->block(node), hidden_rows(rows), logits);
  return logits;
}

Result<std::span<const float>> InferenceModel::logits_of(std::span<const int32_t> rows) {
  JIGE_DO(check_hidden_rows(rows));
  stream_->run_repeated([&] { logits_ = run_head(rows); });
  return to_host<float>(logits_);
}

Result<std::span<const float>> InferenceModel::hidden_of(std::span<const int32_t> rows) {
  JIGE_CHECK(sizes_.embeds, "hidden_of() of a model loaded without embeds");
  JIGE_DO(check_hidden_rows(rows));
  const TensorView normed = buffers_.results.view().row_range(0, std::ssize(rows));
  const size_t node = architecture_->head_node();
  architecture_->head().normed(context(node), weights_->block(node), hidden_rows(rows), normed);
  return to_host<float>(normed);
}

Result<std::span<const float>> InferenceModel::losses(const InferenceBatch& batch,
                                                      std::span<const TargetRow> targets) {
  JIGE_CHECK(sizes_.scores, "losses() of a model loaded without scores");
  JIGE_DO(check(batch));
  for (const TargetRow& target : targets) {
    JIGE_DO(check_range("a target", target.token, 0, config().vocab_size - 1));
    JIGE_DO(check_range("a row with a target", target.row, 0, std::ssize(batch.tokens) - 1));
  }
  JIGE_TRY(const int32_t number, begin(batch, {}));
  Forward& forward = forwards_[static_cast<size_t>(number)];
  JIGE_DO(end_body(forward));
  const TensorView& src = forward.rows;
  losses_.clear();
  const auto step = static_cast<size_t>(sizes_.batch_tokens_max);
  const bool in_first = src.data == buffers_.stream[0].view().data;
  const Tensor& other = buffers_.stream[in_first ? 1 : 0];
  for (size_t begin = 0; begin < targets.size(); begin += step) {
    const size_t count = std::min(step, targets.size() - begin);
    add_losses(targets.subspan(begin, count), src, other.view());
  }
  if (targets.empty()) stream_->synchronize();
  return std::span<const float>(losses_);
}

void InferenceModel::add_losses(std::span<const TargetRow> targets, const TensorView& src,
                                const TensorView& other) {
  const int64_t count = std::ssize(targets);
  std::vector<int32_t> rows, tokens;
  for (const TargetRow& target : targets) {
    rows.push_back(target.row);
    tokens.push_back(target.token);
  }
  TensorView wanted = src;
  if (!follow_one_another(rows)) {
    wanted = other.row_range(0, count);
    ops::select_rows(*stream_, wanted, src, rows);
  } else {
    wanted = src.row_range(rows.front(), rows.back() + 1);
  }
  Batch batch{.tokens = buffers_.tokens.view().row_range(0, count),
              .targets = buffers_.targets.view().row_range(0, count)};
  stream_->copy(batch.targets.data, tokens.data(), count * 4, CopyKind::kHostToDevice);
  const TensorView losses = buffers_.losses.view().row_range(0, count);
  const size_t node = architecture_->head_node();
  architecture_->head().forward(context(node), weights_->block(node), batch, wanted, losses, {});
  const std::span<const float> values = to_host<float>(losses);
  losses_.insert(losses_.end(), values.begin(), values.end());
}

}  // namespace jige::model
