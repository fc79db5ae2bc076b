#include "train/options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/test_support.h"

namespace jige::train {
namespace {

TrainOptions valid_options() {
  TrainOptions options;
  options.config = tiny_config();
  options.tokenizer_folder = "tokenizer";
  options.out_folder = "out";
  options.data.files = {"a.txt"};
  options.steps = 10;
  return options;
}

// Empty when `change` makes the options invalid with a message that has `word`.
template <typename Change>
std::string refused(Change change, const std::string& word) {
  TrainOptions options = valid_options();
  change(options);
  const Status status = validate(options);
  if (status) return "accepted";
  if (status.error().code != Code::kInvalidArgument) return "wrong code";
  return status.error().message.find(word) != std::string::npos ? "" : status.error().message;
}

TEST(TrainOptions, AreCheckedFieldByField) {
  ASSERT_TRUE(validate(valid_options()));
  EXPECT_EQ(refused([](auto& o) { o.init_folder = "x"; }, "either"), "");
  EXPECT_EQ(refused([](auto& o) { o.tokenizer_folder = ""; }, "tokenizer"), "");
  EXPECT_EQ(refused([](auto& o) { o.out_folder = ""; }, "output folder"), "");
  EXPECT_EQ(refused([](auto& o) { o.lora.emplace(); }, "LoRA"), "");
  const auto quantise = [](auto& o) { o.base_format = ops::WeightFormat::kQ4; };
  EXPECT_EQ(refused(quantise, "--quantize q4"), "");
  EXPECT_EQ(refused(quantise, "add --lora"), "");
  EXPECT_EQ(refused([](auto& o) { o.data.eval_fraction = 0.6; }, "--eval-share"), "");
  EXPECT_EQ(refused([](auto& o) { o.data.eval_fraction = NAN; }, "--eval-share"), "");
  EXPECT_EQ(refused([](auto& o) { o.data.split = TextSplit::kSeparator; }, "separator"), "");
  EXPECT_EQ(refused([](auto& o) { o.optimizer.beta1 = -0.1; }, "beta1"), "");
  EXPECT_EQ(refused([](auto& o) { o.optimizer.epsilon = 0; }, "epsilon"), "");
  EXPECT_EQ(refused([](auto& o) { o.optimizer.weight_decay = -1; }, "--weight-decay"), "");
  EXPECT_EQ(refused([](auto& o) { o.optimizer.clip_norm = NAN; }, "--clip"), "");
  EXPECT_EQ(refused([](auto& o) { o.compute = DType::kF16; }, "--dtype"), "");
  EXPECT_EQ(refused([](auto& o) { o.export_dtype = DType::kI8; }, "--export-dtype"), "");
  EXPECT_EQ(refused([](auto& o) { o.context = -1; }, "--context"), "");
  EXPECT_EQ(refused([](auto& o) { o.micro_batch_tokens = 0; }, "--micro-batch-tokens is 0"), "");
  EXPECT_EQ(refused([](auto& o) { o.step_tokens = 0; }, "--batch-tokens is 0"), "");
  EXPECT_EQ(refused([](auto& o) { o.steps = 0; }, "--steps or --epochs"), "");
  EXPECT_EQ(refused([](auto& o) { o.epochs = -1; }, "epochs"), "");
  EXPECT_EQ(refused([](auto& o) { o.checkpoints_kept = 0; }, "--keep"), "");
  EXPECT_EQ(refused([](auto& o) { o.thread_count = -1; }, "--threads"), "");
  EXPECT_EQ(refused([](auto& o) { o.memory_limit_bytes = -1; }, "--memory-limit"), "");
}

TEST(Identity, HoldsWhatDecidesResultsOnly) {
  const Json identity = identity_json(valid_options());
  TrainOptions free = valid_options();
  free.thread_count = 7;
  free.micro_batch_tokens = 77;
  free.eval_every_steps = 7;
  free.checkpoint_every_steps = 7;
  free.out_folder = "elsewhere";
  free.data.files = {"b.txt"};  // counts by its content, which the trainer adds
  EXPECT_TRUE(check_same_identity(identity, identity_json(free), "here"));
  TrainOptions other = valid_options();
  other.optimizer.beta2 = 0.9;
  const Status status = check_same_identity(identity, identity_json(other), "here");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("here"), std::string::npos);
  EXPECT_NE(status.error().message.find("optimizer.beta2 = 0.95, this run has 0.9"),
            std::string::npos)
      << status.error().message;
}

TEST(Identity, NamesTheFlagOfWhatDiffers) {
  const Json saved = identity_json(valid_options());
  const auto message = [&](auto change) {
    TrainOptions other = valid_options();
    change(other);
    return check_same_identity(saved, identity_json(other), "here").error().message;
  };
  EXPECT_NE(message([](auto& o) { o.schedule.peak = 7; }).find("old value of --lr,"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.steps = 7; })
                .find("old value of --steps, or start anew in another folder, from the weights of "
                      "this one by --from"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.step_tokens = 7; }).find("old value of --batch-tokens,"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) {
              o.config->ffn_size = 7;
            }).find("old value of --from, --config or --size,"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.optimizer.epsilon = 7; }).find("old value, or"),
            std::string::npos);
}

TEST(Identity, TellsRunsOnLevelsOfFourBitsThatWereAllEvenFromLaterOnes) {
  TrainOptions options = valid_options();
  const Json whole = identity_json(options);
  options.base_format = ops::WeightFormat::kQ4;
  const Json now = identity_json(options);
  Json before = now;
  before.erase("quantize_levels");
  EXPECT_TRUE(check_same_identity(now, now, "here"));
  const auto message = [](const Json& saved, const Json& wanted) {
    return check_same_identity(saved, wanted, "here").error().message;
  };
  EXPECT_NE(message(before, now).find("another build"), std::string::npos);
  EXPECT_NE(message(whole, now).find("continue without --quantize,"), std::string::npos)
      << message(whole, now);
  EXPECT_NE(message(now, whole).find("old value of --quantize,"), std::string::npos)
      << message(now, whole);
}

TEST(Identity, NamesTheLayoutOfTokensWhereItIsNotTheUsualOne) {
  TrainOptions raw = valid_options();
  EXPECT_FALSE(identity_json(raw)["data"].contains("token_layout"));
  raw.data.token_layout = formats::TokenLayout::kRawU32;
  EXPECT_EQ(identity_json(raw)["data"]["token_layout"], "raw-u32");
}

TEST(Identity, HoldsWhetherAPartOfTheTrainingDataIsHeldOut) {
  const Json within = identity_json(valid_options());
  TrainOptions options = valid_options();
  options.data.eval_files = {"b.txt"};
  const Json apart = identity_json(options);
  const std::string message = check_same_identity(within, apart, "here").error().message;
  EXPECT_NE(message.find("--eval-data"), std::string::npos) << message;
  EXPECT_FALSE(check_same_identity(apart, within, "here"));
  // Checkpoints made before this was kept go on with either.
  Json before = within;
  before["data"].erase("eval_files");
  EXPECT_TRUE(check_same_identity(before, within, "here"));
  EXPECT_TRUE(check_same_identity(before, apart, "here"));
  // Where nothing is held out in any case, they decide nothing.
  options.data.eval_fraction = 0;
  TrainOptions none = valid_options();
  none.data.eval_fraction = 0;
  EXPECT_TRUE(check_same_identity(identity_json(none), identity_json(options), "here"));
}

TEST(Identity, ReadsBackFromItsText) {
  const Json identity = identity_json(valid_options());
  const auto read = parse_json(dump_json(identity), "identity");
  ASSERT_TRUE(read);
  EXPECT_TRUE(check_same_identity(*read, identity, "here"));
}

TEST(Identity, NamesFieldsThatOnlyOneSideHas) {
  const Json plain = identity_json(valid_options());
  Json more = plain;
  more["lora"] = {{"rank", 4}};
  EXPECT_EQ(
      check_same_identity(plain, more, "x").error().message,
      R"(x: was made without lora, this run has {"rank":4}; continue without --lora, or start )"
      "anew in another folder");
  EXPECT_EQ(
      check_same_identity(more, plain, "x").error().message,
      R"(x: was made with lora = {"rank":4}, this run has none; continue with the old value of )"
      "--lora, or start anew in another folder");
}

}  // namespace
}  // namespace jige::train
