#include "train/run_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "train/checkpoint_export.h"
#include "train/document_encoder.h"
#include "train/document_index.h"
#include "train/test_support.h"
#include "train/trainer.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

constexpr uint64_t kFuzzSeed = 97;
constexpr uint64_t kFuzzRounds = 400;

// Changes, removes and inserts a few bytes.
std::string mutated(std::string bytes, Rng& rng) {
  for (uint64_t i = 0, count = 1 + rng.below(4); i < count && !bytes.empty(); ++i) {
    const size_t place = rng.below(bytes.size());
    switch (rng.below(4)) {
      case 0:
        bytes[place] = static_cast<char>(rng.below(256));
        break;
      case 1:
        bytes.erase(place, 1 + rng.below(6));
        break;
      case 2:
        bytes.insert(place, 1, "\"{}[],:0-9.eE\\u"[rng.below(15)]);
        break;
      default:
        bytes.insert(place, bytes.substr(rng.below(bytes.size()), 1 + rng.below(12)));
    }
  }
  return bytes;
}

RunState some_state() {
  return {.step = 7,
          .cursor = 123456789012,
          .update_count = 6,
          .input_tokens = 1000,
          .learned_tokens = 900,
          .bad_steps = 3,
          .bad_steps_in_row = 1,
          .log_bytes = 4321,
          .seconds = 0.1};
}

TEST(RunState, ReadsBackFromItsText) {
  RunState saved = some_state();
  saved.evaluation_due = true;
  saved.best = BestMeasurement{.cost = 1.5, .step = 4, .since = 2};
  const Json json = *parse_json(dump_json(saved.to_json()), "state");
  const auto state = RunState::from_json(json, "state");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->to_json(), saved.to_json());
}

TEST(RunState, NamesTheFieldThatIsWrong) {
  const Json whole = some_state().to_json();  // outlives the loop, as its items() must
  for (const auto& [field, value] : whole.items()) {
    Json json = whole;
    json.erase(field);
    const auto absent = RunState::from_json(json, "state.json");
    ASSERT_FALSE(absent);
    EXPECT_NE(absent.error().message.find("state.json: field \"" + field), std::string::npos);
    json[field] = "many";
    EXPECT_FALSE(RunState::from_json(json, "state.json"));
  }
  Json json = some_state().to_json();
  for (const int64_t beyond : {int64_t{-1}, INT64_MAX}) {
    json["cursor"] = beyond;
    EXPECT_FALSE(RunState::from_json(json, "state.json")) << beyond;
  }
}

TEST(RunState, SurvivesAnyBytes) {
  Rng rng(kFuzzSeed);
  const std::string text = dump_json(some_state().to_json());
  for (uint64_t round = 0; round < fuzz_rounds(kFuzzRounds); ++round) {
    const auto json = parse_json(mutated(text, rng), "state");
    if (json) (void)RunState::from_json(*json, "state");
  }
}

TEST(DocumentIndex, SurvivesAnyBytes) {
  const TestFolder folder;
  const std::string path = folder.file("a.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = 10});
  ASSERT_TRUE(writer->append(std::vector<int32_t>(60, 3)));
  ASSERT_TRUE(writer->commit());
  const auto file = formats::TokenFile::open(path, {});
  ASSERT_TRUE(write_document_index(path, std::vector<int64_t>{5, 20, 60}));
  const std::string bytes = *read_file(document_index_path(path));
  Rng rng(kFuzzSeed);
  for (uint64_t round = 0; round < fuzz_rounds(kFuzzRounds); ++round) {
    folder.write("a.bin.documents", mutated(bytes, rng));
    const auto ends = read_document_ends(*file, -1);
    if (!ends) continue;
    EXPECT_EQ(ends->back(), 60) << "round " << round;
    EXPECT_TRUE(std::is_sorted(ends->begin(), ends->end())) << "round " << round;
  }
}

TEST(DocumentEncoder, SurvivesAnyLine) {
  const TestFolder folder;
  write_test_tokenizer(folder.file("tokenizer"));
  const auto encoder = DocumentEncoder::create(load_test_tokenizer(folder.file("tokenizer")), {});
  ASSERT_TRUE(encoder);
  const std::string lines[] = {
      R"({"text": "hello"})", R"({"prompt": "a", "completion": "b"})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"};
  Rng rng(kFuzzSeed);
  for (uint64_t round = 0; round < fuzz_rounds(kFuzzRounds); ++round) {
    const Record record{.text = mutated(lines[round % 3], rng), .json = true, .line = 3};
    const auto part = encoder->encode(record, "f.jsonl");
    if (!part) {
      EXPECT_EQ(part.error().message.find("f.jsonl:3"), 0u) << part.error().message;
    } else {
      EXPECT_TRUE(part->learned.empty() || part->learned.size() == part->ids.size());
    }
  }
}

// A checkpoint whose checksums are right and whose state lies is refused, not followed.
TEST(RunState, IsRefusedWhereItContradictsTheRun) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(30))});
  options.steps = 0;
  options.epochs = 2;
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  auto first = Trainer::create(options, callbacks);
  ASSERT_TRUE(first);
  ASSERT_TRUE((*first)->run());
  first->reset();
  const std::string run_folder = options.out_folder + "/checkpoints";
  const auto reader = formats::CheckpointReader::open_latest(run_folder);
  ASSERT_TRUE(reader);
  const auto refused = [&](const char* field, int64_t value) {
    Json state = reader->state();
    state["run"][field] = value;
    formats::CheckpointWriter writer(run_folder, 2);
    for (const char* file : {"params", "adam_m", "adam_v"}) {
      for (const auto* tensor : reader->tensors(file)) {
        writer.add(file, tensor->name, *reader->tensor(file, tensor->name));
      }
    }
    state["run"]["step"] = field == std::string("step") ? value : 2;
    EXPECT_TRUE(writer.commit(state, {.newest = 0}));
    const auto trainer = Trainer::create(options);
    return !trainer && trainer.error().code == Code::kCorrupt;
  };
  EXPECT_TRUE(refused("cursor", 1000000));
  EXPECT_TRUE(refused("step", 1000));
  EXPECT_TRUE(refused("update_count", 3));
  EXPECT_FALSE(refused("update_count", 2));
}

// Damage that whoever writes checksums can do: what is not refused is gone on with.
TEST(RunState, DamagedOnesAreRefusedOrGoneOnWith) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(30))});
  options.steps = 6;
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  const std::string run_folder = options.out_folder + "/checkpoints";
  ASSERT_TRUE(train(options, callbacks));
  const auto reader = formats::CheckpointReader::open_latest(run_folder);
  ASSERT_TRUE(reader && reader->step() == 1);
  const std::string log = *read_file(options.out_folder + "/log.jsonl");
  int gone_on = 0, exported = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(120); ++seed) {
    Json state = reader->state();
    const char* part = seed % 4 == 0 ? "identity" : seed % 4 == 1 ? "origin" : "run";
    const auto damaged = parse_json(Mutator(seed).mutate(dump_json(state[part])), "damaged");
    if (!damaged) continue;
    state[part] = *damaged;
    std::filesystem::remove_all(run_folder);
    formats::CheckpointWriter writer(run_folder, 1);
    for (const char* file : {"params", "adam_m", "adam_v"}) {
      for (const auto* tensor : reader->tensors(file)) {
        writer.add(file, tensor->name, *reader->tensor(file, tensor->name));
      }
    }
    ASSERT_TRUE(writer.commit(state, {.newest = 0}));
    ASSERT_TRUE(write_file_atomic(options.out_folder + "/log.jsonl", log));
    exported +=
        export_checkpoint({.run_folder = options.out_folder, .out_folder = folder.file("exported")})
            .has_value();
    std::filesystem::remove_all(folder.file("exported"));
    const auto run = train(options, callbacks);
    if (!run) {
      ASSERT_NE(run.error().message.find("step-00000001"), std::string::npos)
          << seed << ": " << run.error().message;
      continue;
    }
    ++gone_on;
    ASSERT_EQ(formats::CheckpointReader::open_latest(run_folder)->step(), 2) << seed;
  }
  EXPECT_GT(gone_on, 5);
  EXPECT_GT(exported, 5);
}

}  // namespace
}  // namespace jige::train
