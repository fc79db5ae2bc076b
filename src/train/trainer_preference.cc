// The reference of a preference run: trainer.h.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "formats/xxhash64.h"
#include "train/preference_engine.h"
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

Status Trainer::prepare_reference(bool fresh) {
  const uint64_t key = reference_key(setup_);
  const std::string path = reference_path(setup_.options.data.cache_folder, key);
  auto kept = read_reference(path, key);
  if (kept && is_of(kept->training, setup_.dataset.training) &&
      is_of(kept->held_out, setup_.dataset.held_out)) {
    preference_->set_reference(std::move(*kept));
    return {};
  }
  if (!kept && kept.error().code != Code::kNotFound) {
    log_warn("{}; it is made anew", kept.error().message);
  }
  if (!fresh) {
    const std::string& folder = setup_.options.init_folder;
    JIGE_TRY(const std::string checksum, hash_weights(folder));
    if (checksum != first_weights_checksum(setup_)) {
      return fail(Code::kInvalidArgument,
                  "{}: is not there any more, and cannot be made anew: the weights in {} are not "
                  "those that the run began with; put them back, or start anew in another folder",
                  path, folder);
    }
    JIGE_DO(start_weights());
  }
  return compute_reference(path, key);
}

Status Trainer::compute_reference(const std::string& path, uint64_t key) {
  const Dataset& dataset = setup_.dataset;
  int64_t total = dataset.input_count();
  for (const Sequence& pair : dataset.held_out) total += pair.count;
  int64_t before = 0;
  const auto progress = [&](int64_t done) {
    return !callbacks_.on_reference || callbacks_.on_reference(before + done, total);
  };
  ReferenceLogProbs reference;
  JIGE_TRY(reference.training, preference_->logprobs(dataset.corpus, dataset.training, progress));
  before = dataset.input_count();
  JIGE_TRY(reference.held_out,
           preference_->logprobs(dataset.held_out_corpus(), dataset.held_out, progress));
  JIGE_DO(make_folders(setup_.options.data.cache_folder));
  JIGE_DO(write_reference(path, key, reference));
  preference_->set_reference(std::move(reference));
  return {};
}

}  // namespace jige::train
