// For tests of preference runs: a model to start from, options, and where the reference is kept.
//
// Threads: the test's.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "train/test_support.h"
#include "train/trainer_test_support.h"

namespace jige::train {

// A tiny model that has learned both answers, in `folder`/first/model. The first test trains it.
inline std::string first_model(const TestFolder& folder) {
  static FolderFiles made;
  if (!made.empty()) {
    write_folder(folder.file("first/model"), made);
    return folder.file("first/model");
  }
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += dump_json(Json{{"prompt", std::to_string(i) + " is "},
                            {"completion", i % 2 == 0 ? "yy" : "nn"}}) +
             "\n";
  }
  TrainOptions options = tiny_options(folder, {folder.write("first.jsonl", lines)});
  options.out_folder = folder.file("first");
  options.config->ffn_size = 64;  // of blocks that can be dropped
  options.steps = 20;
  const auto run = train(options);
  EXPECT_TRUE(run) << run.error().message;
  made = read_folder(run->result.model_folder);
  return run->result.model_folder;
}

inline TrainOptions preference_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options =
      tuning_options(tiny_options(folder, {folder.write("pairs.jsonl", small_pairs(48))}),
                     folder.file("first/model"), folder.file(out));
  options.dpo.emplace();
  options.schedule.peak = 1e-3;
  options.steps = 10;
  return options;
}

inline std::string reference_file(const TrainOptions& options) {
  for (const auto& entry : std::filesystem::directory_iterator(options.out_folder + "/cache")) {
    if (entry.path().filename().string().starts_with("reference-")) return entry.path().string();
  }
  return "";
}

}  // namespace jige::train
