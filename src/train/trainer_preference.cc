// The reference of a preference run: trainer.h.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "formats/xxhash64.h"
#include "train/preference_passes.h"
#include "train/rank_exchange.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

// Raised when the values of unchanged data and weights would change.
constexpr int kReferenceVersion = 1;

// By which a run knows the weights that it began with; "" where it does not.
std::string first_weights_checksum(const RunSetup& setup) {
  if (setup.options.lora) return setup.identity->at("lora").at("base").get<std::string>();
  return setup.source ? setup.source->checksum : "";
}

uint64_t reference_key(const RunSetup& setup) {
  const Json& identity = *setup.identity;
  const std::string text = dump_json(Json{{"version", kReferenceVersion},
                                          {"weights", first_weights_checksum(setup)},
                                          {"model", identity.at("model")},
                                          {"quantize", identity.value("quantize", "none")},
                                          {"compute", identity.at("compute")},
                                          {"data", identity.at("data")},
                                          {"held_out", setup.dataset.eval_keys},
                                          {"context", identity.at("context")},
                                          {"seed", identity.at("seed")}});
  formats::XxHash64 hash;
  hash.update(text.data(), text.size());
  return hash.digest();
}

bool is_of(const std::vector<ReferencePair>& reference, const std::vector<Sequence>& pairs) {
  return std::ranges::equal(reference, pairs, {}, &ReferencePair::begin, &Sequence::begin);
}

}  // namespace

bool Trainer::read_kept_reference() {
  const uint64_t key = reference_key(setup_);
  auto kept = read_reference(reference_path(setup_.options.data.cache_folder, key), key);
  if (kept && is_of(kept->training, setup_.dataset.training) &&
      is_of(kept->held_out, setup_.dataset.held_out)) {
    engine_->preference()->set_reference(std::move(*kept));
    return true;
  }
  if (!kept && kept.error().code != Code::kNotFound) {
    log_warn("{}; it is made anew", kept.error().message);
  }
  return false;
}

Status Trainer::check_first_weights() const {
  const std::string& folder = setup_.options.init_folder;
  JIGE_TRY(const std::string checksum, hash_weights(folder));
  if (checksum == first_weights_checksum(setup_)) return {};
  return fail(Code::kInvalidArgument,
              "{}: is not there any more, and cannot be made anew: the weights in {} are not "
              "those that the run began with; put them back, or start anew in another folder",
              reference_path(setup_.options.data.cache_folder, reference_key(setup_)), folder);
}

Status Trainer::share_reference(const std::optional<formats::CheckpointReader>& checkpoint) {
  // What rank 0 makes of it, for all.
  enum class Source : uint8_t { kNone, kKept, kComputed };
  auto source = Source::kComputed;
  if (setup_.leads()) {
    const bool complete = checkpoint && checkpoint->step() == setup_.plan.steps_total;
    if (complete || read_kept_reference()) source = complete ? Source::kNone : Source::kKept;
    if (source == Source::kComputed && checkpoint) JIGE_DO(check_first_weights());
  }
  const bool alone = !setup_.options.ranks || setup_.options.ranks->size == 1;
  const auto from_rank_0 = [&](std::span<std::byte> bytes) {
    return alone ? Status() : broadcast_bytes(*setup_.options.ranks->group, 0, bytes);
  };
  JIGE_DO(from_rank_0(std::as_writable_bytes(std::span(&source, 1))));
  if (source == Source::kNone) return {};
  if (source == Source::kComputed) {
    if (checkpoint || !setup_.leads()) JIGE_DO(start_weights());
    return compute_reference();
  }
  // All have the same data.
  ReferenceLogProbs& reference = engine_->preference()->reference();
  reference.training.resize(setup_.dataset.training.size());
  reference.held_out.resize(setup_.dataset.held_out.size());
  JIGE_DO(from_rank_0(std::as_writable_bytes(std::span(reference.training))));
  return from_rank_0(std::as_writable_bytes(std::span(reference.held_out)));
}

Status Trainer::compute_reference() {
  PreferencePasses& passes = *engine_->preference();
  const Dataset& dataset = setup_.dataset;
  const int64_t total = dataset.all_input_count();
  int64_t before = 0;
  const auto progress = [&](int64_t done) {
    return !callbacks_.on_reference || callbacks_.on_reference(before + done, total);
  };
  ReferenceLogProbs& reference = passes.reference();
  JIGE_TRY(reference.training, passes.logprobs(dataset.corpus, dataset.training, progress));
  before = dataset.input_count();
  JIGE_TRY(reference.held_out,
           passes.logprobs(dataset.held_out_corpus(), dataset.held_out, progress));
  if (!setup_.leads()) return {};
  const uint64_t key = reference_key(setup_);
  JIGE_DO(make_folders(setup_.options.data.cache_folder));
  return write_reference(reference_path(setup_.options.data.cache_folder, key), key, reference);
}

}  // namespace jige::train
