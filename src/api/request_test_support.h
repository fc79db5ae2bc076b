// What the tests of requests share: requests that are refused, and with which field's name.
//
// Threads: one test at a time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/api_test_support.h"
#include "serve/adapter_folders.h"

namespace jige::api::testing {

inline constexpr uint64_t kSeed = 42;
inline constexpr const char* kHi = R"("messages":[{"role":"user","content":"hi"}])";

// What is made of a request's members.
inline ApiResult<PreparedRequest> completion(const std::string& members) {
  return prepare_completion(json_of("{" + members + "}"), test_model(), {}, kSeed);
}

inline ApiResult<PreparedRequest> chat(const std::string& members) {
  return prepare_chat(json_of("{" + members + "}"), test_model(), {}, kSeed);
}

// A model with the adapter "poet", number 7, which may go. Its lease stands for that of a room.
inline ServedModel with_leased_adapter(ServedModel model) {
  const serve::testing::AdapterFolders folders("llama3");
  const auto architecture = value_of(model::Architecture::create(value_of(
      formats::load_model_config(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/llama3"))));
  auto adapter = value_of(model::Adapter::open(folders.sources.front(), *architecture));
  const auto lease = std::make_shared<const model::NumberedAdapter>(7, std::move(adapter));
  model.adapters = std::make_shared<ServedAdapters>();
  model.adapters->add({.name = "poet", .number = lease->number, .lease = lease});
  return model;
}

struct Refusal {
  std::string members;  // of the request
  std::string param;
  std::string message;  // part of it
};

// `read`: from members to an ApiResult.
template <typename Read>
void expect_refused(const std::vector<Refusal>& refusals, const Read& read) {
  for (const Refusal& refusal : refusals) {
    const auto result = read(refusal.members);
    ASSERT_FALSE(result) << refusal.members.substr(0, 100);
    EXPECT_EQ(result.error().status, 400) << refusal.members;
    EXPECT_EQ(result.error().param, refusal.param) << refusal.members;
    EXPECT_THAT(result.error().message, ::testing::HasSubstr(refusal.message)) << refusal.members;
  }
}

}  // namespace jige::api::testing
