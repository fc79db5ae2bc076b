// For tests of preference tuning: pairs of token ids as a corpus, and an engine on a model of the
// fixtures.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "formats/tensor_folder.h"
#include "formats/token_bin.h"
#include "model/weights.h"
#include "tensor/cpu_device.h"
#include "train/preference_engine.h"
#include "train/recording_test_support.h"
#include "train/test_support.h"

namespace jige::train {

struct IdPair {
  std::vector<int32_t> prompt, chosen, rejected;
};

struct PairCorpus {
  Corpus corpus;
  std::vector<Sequence> pairs;
};

// Each pair as two documents, prompt and answer, of which the answer is learned.
inline PairCorpus write_pairs(const std::string& path, const std::vector<IdPair>& pairs) {
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 256, .with_mask = true});
  EXPECT_TRUE(writer);
  std::vector<int64_t> ends;
  for (const IdPair& pair : pairs) {
    for (const std::vector<int32_t>* answer : {&pair.chosen, &pair.rejected}) {
      const std::vector<uint8_t> learned(answer->size(), 1);
      EXPECT_TRUE(writer->append(pair.prompt, std::vector<uint8_t>(pair.prompt.size(), 0)));
      EXPECT_TRUE(writer->append(*answer, learned));
      ends.push_back(writer->count());
    }
  }
  EXPECT_TRUE(writer->commit());
  PairCorpus made;
  auto file = formats::TokenFile::open(path, {.vocab_size = 256});
  EXPECT_TRUE(file);
  made.corpus.add(std::move(*file), std::move(ends), DocumentsOf::kPairs);
  const auto cut = cut_sequences(made.corpus, {.context = 64});
  EXPECT_TRUE(cut) << cut.error().message;
  made.pairs = cut->training;
  return made;
}

struct PreferenceRigOptions {
  std::string model = "llama2";
  DpoOptions dpo;
  OptimizerOptions optimizer = {.clip_norm = 0};
  int64_t micro_batch_tokens = 128;
  int threads = 1;
  DType compute = DType::kF32;
};

// An engine with the weights of a model of the fixtures, and that model as its reference.
class PreferenceRig {
 public:
  PreferenceRig(const PairCorpus& data, const PreferenceRigOptions& options)
      : data_(data), options_(options), device_({.thread_count = options.threads}) {
    const std::string folder = kFixtures + "model/" + options.model;
    architecture_ = *model::Architecture::create(*formats::load_model_config(folder));
    const model::WeightsOptions weights{
        .compute = options.compute, .use = model::PackFor::kTraining, .position_count = 64};
    TrainOptions train;
    train.dpo = options.dpo;
    train.optimizer = options.optimizer;
    train.micro_batch_tokens = options.micro_batch_tokens;
    engine_ = *PreferenceEngine::create(
        device_, *architecture_, weights,
        model::training_memory(*architecture_, weights, options.micro_batch_tokens), train);
    const auto files = formats::TensorFolder::open(folder);
    EXPECT_TRUE(model::load_weights(engine_->weights(), engine_->stream(), *files));
    const auto pairs = *engine_->preference()->logprobs(data.corpus, data.pairs, {});
    reference_ = {.training = pairs, .held_out = pairs};
    engine_->preference()->set_reference(reference_);
  }

  StepOutcome step(double learning_rate) {
    const auto outcome = engine_->run(data_.corpus, plan(), {.learning_rate = learning_rate});
    EXPECT_TRUE(outcome);
    return *outcome;
  }
  PreferenceMeans measure() {
    return **engine_->preference()->measure(data_.corpus, plan().micro_batches, {});
  }

  PreferenceEngine& engine() { return *engine_; }
  const ReferenceLogProbs& reference() const { return reference_; }
  std::span<const model::NamedParam> params() { return engine_->optimizer().params(); }

 private:
  // All pairs, in their order.
  StepPlan plan() const {
    return {.micro_batches = pack_micro_batches(data_.pairs, options_.micro_batch_tokens)};
  }

  const PairCorpus& data_;
  PreferenceRigOptions options_;
  CpuDevice device_;
  std::unique_ptr<const model::Architecture> architecture_;
  std::unique_ptr<PreferenceEngine> engine_;
  ReferenceLogProbs reference_;
};

}  // namespace jige::train
