#include "train/run_state.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/safetensors_writer.h"

namespace jige::train {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 60;  // of steps, tokens, bytes: room to add to it

// A tensor of a device as a source of host rows, a piece at a time.
formats::TensorSource device_source(const std::string& name, const TensorView& view,
                                    Stream& stream) {
  formats::TensorSource source{.name = name, .dtype = view.dtype, .shape = view.shape};
  source.produce = [view, &stream](const formats::RowSink& sink) -> Status {
    const int64_t row_bytes = std::max<int64_t>(dtype_bytes(view.dtype, view.columns()), 1);
    const int64_t piece_rows = std::max<int64_t>(kSavedPieceBytes / row_bytes, 1);
    std::vector<std::byte> staging(
        static_cast<size_t>(std::min(piece_rows, view.rows()) * row_bytes));
    for (int64_t begin = 0; begin < view.rows(); begin += piece_rows) {
      const TensorView rows = view.row_range(begin, std::min(begin + piece_rows, view.rows()));
      stream.copy(staging.data(), rows.data, rows.rows() * row_bytes, CopyKind::kDeviceToHost);
      stream.synchronize();
      JIGE_DO(sink(TensorView::of(staging.data(), view.dtype, rows.shape)));
    }
    return {};
  };
  return source;
}

struct StoredPart {
  const char* file;
  ops::MomentLayout layout;  // of the whole
  ElementRange part;         // of the parameter
};

// Reads elements of a tensor into memory for as many.
Status restore_tensor(const formats::CheckpointReader& checkpoint, const std::string& name,
                      const StoredPart& want, void* dst, Stream& stream) {
  JIGE_TRY(const TensorView stored, checkpoint.tensor(want.file, name));
  const auto& [dtype, shape] = want.layout;
  if (stored.dtype != dtype || !(stored.shape == shape)) {
    return fail(Code::kCorrupt, "{}: {} of {} is {} {}, the model has {} {}", checkpoint.folder(),
                name, want.file, dtype_info(stored.dtype).name, stored.shape.to_string(),
                dtype_info(dtype).name, shape.to_string());
  }
  if (want.part.count > 0) {
    const int64_t begin = ops::moment_bytes(dtype, want.part.begin);
    stream.copy(dst, static_cast<const std::byte*>(stored.data) + begin,
                ops::moment_bytes(dtype, want.part.end()) - begin, CopyKind::kHostToDevice);
  }
  return {};
}

}  // namespace

Json RunState::to_json() const {
  Json json = {{"step", step},
               {"cursor", cursor},
               {"update_count", update_count},
               {"input_tokens", input_tokens},
               {"learned_tokens", learned_tokens},
               {"bad_steps", bad_steps},
               {"bad_steps_in_row", bad_steps_in_row},
               {"log_bytes", log_bytes},
               {"seconds", seconds}};
  if (evaluation_due) json["evaluation_due"] = true;
  if (best) json["best"] = best->to_json();
  return json;
}

Result<RunState> RunState::from_json(const Json& json, const std::string& where) {
  RunState state;
  const auto read = [&](const char* field, int64_t& value) -> Status {
    JIGE_TRY(value, get_int(json, field, where));
    if (value < 0 || value > kCountMax) {
      return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}, not 0 to {}", where, field,
                  value, kCountMax);
    }
    return {};
  };
  int64_t cursor = 0;
  JIGE_DO(read("step", state.step));
  JIGE_DO(read("cursor", cursor));
  JIGE_DO(read("update_count", state.update_count));
  JIGE_DO(read("input_tokens", state.input_tokens));
  JIGE_DO(read("learned_tokens", state.learned_tokens));
  JIGE_DO(read("bad_steps", state.bad_steps));
  JIGE_DO(read("bad_steps_in_row", state.bad_steps_in_row));
  JIGE_DO(read("log_bytes", state.log_bytes));
  JIGE_TRY(state.seconds, get_number(json, "seconds", where));
  JIGE_TRY(state.evaluation_due, get_bool_or(json, "evaluation_due", false, where));
  if (const auto best = json.find("best"); best != json.end()) {
    JIGE_TRY(state.best, BestMeasurement::from_json(*best, where));
  }
  state.cursor = static_cast<uint64_t>(cursor);
  return state;
}

Json RunOrigin::to_json() const {
  Json json = {{"tokenizer_folder", tokenizer_folder},
               {"base_folder", base_folder},
               {"export_dtype", dtype_info(export_dtype).name}};
  if (!image_folder.empty()) json["image_folder"] = image_folder;
  if (source) json["source"] = {{"folder", source->folder}, {"checksum", source->checksum}};
  return json;
}

Result<RunOrigin> RunOrigin::from_state(const Json& state, const std::string& where) {
  const auto found = state.find("origin");
  if (found == state.end()) return RunOrigin{};
  RunOrigin origin;
  JIGE_TRY(origin.tokenizer_folder, get_string(*found, "tokenizer_folder", where));
  JIGE_TRY(origin.base_folder, get_string(*found, "base_folder", where));
  JIGE_TRY(origin.image_folder, get_string_or(*found, "image_folder", "", where));
  JIGE_TRY(const std::string name, get_string(*found, "export_dtype", where));
  Result<DType> dtype = parse_dtype(name);
  if (!dtype) {
    return with_context(std::move(dtype.error()), "{}: field \"export_dtype\"", where);
  }
  origin.export_dtype = *dtype;
  if (const auto source = found->find("source"); source != found->end()) {
    origin.source.emplace();
    JIGE_TRY(origin.source->folder, get_string(*source, "folder", where));
    JIGE_TRY(origin.source->checksum, get_string(*source, "checksum", where));
  }
  return origin;
}

Status save_checkpoint(const SaveRequest& request, const Json& identity, const RunState& state,
                       const SavedParts& parts, const model::NodeStreams& streams) {
  const auto& [optimizer, gate, moments] = parts;
  formats::CheckpointWriter writer(request.run_folder, state.step);
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const model::NamedParam& param = optimizer.params()[i];
    Stream& stream = streams[param.node];
    writer.add(kCheckpointValues, device_source(param.spec->name, param.value, stream));
    const auto moment = [&](int k) {
      const TensorView& own = k == 0 ? optimizer.moment1(i) : optimizer.moment2(i);
      return moments ? moments(i, k) : device_source(param.spec->name, own, stream);
    };
    writer.add(kCheckpointMoments1, moment(0));
    writer.add(kCheckpointMoments2, moment(1));
  }
  if (gate) {
    for (const RowGate::State& part : gate->state()) {
      writer.add(kCheckpointRowGate, formats::TensorSource::of(part.name, part.view));
    }
  }
  const Json json = {
      {"identity", identity}, {"run", state.to_json()}, {"origin", request.origin.to_json()}};
  return writer.commit(json, {.newest = request.keep_last, .step = request.keep_step});
}

Status restore_parameters(const formats::CheckpointReader& checkpoint, Optimizer& optimizer,
                          const model::NodeStreams& streams) {
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const model::NamedParam& param = optimizer.params()[i];
    const auto restore = [&](const StoredPart& want, void* dst) {
      return restore_tensor(checkpoint, param.spec->name, want, dst, streams[param.node]);
    };
    const ops::MomentLayout value{DType::kF32, param.spec->shape};
    const ops::MomentLayout moment = optimizer.moment_layout(i);
    const ElementRange& held = optimizer.held(i);
    JIGE_DO(restore({kCheckpointValues, value, {0, param.value.count()}}, param.value.data));
    JIGE_DO(restore({kCheckpointMoments1, moment, held}, optimizer.moment1(i).data));
    JIGE_DO(restore({kCheckpointMoments2, moment, held}, optimizer.moment2(i).data));
  }
  streams.synchronize();
  return {};
}

Status restore_row_gate(const formats::CheckpointReader& checkpoint, RowGate& gate,
                        Stream& stream) {
  for (const RowGate::State& part : gate.state()) {
    const StoredPart want = {
        kCheckpointRowGate, {DType::kF32, part.view.shape}, {0, part.view.count()}};
    JIGE_DO(restore_tensor(checkpoint, part.name, want, part.view.data, stream));
  }
  stream.synchronize();
  return gate.check_state(checkpoint.folder());
}

}  // namespace jige::train
