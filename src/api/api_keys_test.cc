#include "api/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace jige::api {
namespace {

HttpRequest with_field(const std::string& value) {
  HttpRequest request;
  request.headers = {{"authorization", value}};
  return request;
}

TEST(ApiKeys, AdmitsEverybodyWithoutKeys) { EXPECT_TRUE(ApiKeys().admits({})); }

TEST(ApiKeys, AdmitsThoseWithAKey) {
  const ApiKeys keys({"first-key", "second-key"});
  EXPECT_TRUE(keys.admits(with_field("Bearer first-key")));
  EXPECT_TRUE(keys.admits(with_field("bearer  second-key ")));
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer first-ke", "Bearer first-key2", "first-key",
        "Basic first-key", "Bearer FIRST-KEY", "Bearer first-keyfirst-key"}) {
    EXPECT_FALSE(keys.admits(with_field(wrong))) << wrong;
  }
  EXPECT_FALSE(keys.admits({}));
}

TEST(ApiKeys, AKeyMayStandInAFieldOfItsOwn) {
  const ApiKeys keys({"first-key"});
  HttpRequest request;
  request.headers = {{"X-Api-Key", " first-key"}};
  EXPECT_TRUE(keys.admits(request));
  for (const char* wrong : {"", "first-ke", "Bearer first-key"}) {
    request.headers = {{"x-api-key", wrong}};
    EXPECT_FALSE(keys.admits(request)) << wrong;
  }
}

TEST(ApiKeys, ComparesWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abd", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", ""));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

class ApiKeyFile : public ::testing::Test {
 protected:
  Result<ApiKeys> load(const std::string& text) {
    EXPECT_TRUE(write_file_atomic(path_, text));
    return ApiKeys::load(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ = ::testing::TempDir() + "jige_api_keys_" + std::to_string(getpid());
};

TEST_F(ApiKeyFile, HoldsOneKeyALine) {
  const auto keys = load("# people\nfirst-key\r\n\n  second-key \n");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_TRUE(keys->admits(with_field("Bearer first-key")));
  EXPECT_TRUE(keys->admits(with_field("Bearer second-key")));
  EXPECT_FALSE(keys->admits(with_field("Bearer # people")));
}

TEST(ApiKeys, OfAVariableMayEndWithALineBreak) {
  const auto keys = ApiKeys::parse("first-key\n", "JIGE_API_KEY");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_TRUE(keys->admits(with_field("Bearer first-key")));
  EXPECT_EQ(ApiKeys::parse(" \n", "JIGE_API_KEY").error().message,
            "JIGE_API_KEY: holds no key; one a line");
}

TEST(ApiKeys, ClientsSendTheKeyOfTheVariableOnOneLine) {
  setenv("JIGE_API_KEY", " first-key\r\n", 1);
  EXPECT_EQ(client_key(), "first-key");
  unsetenv("JIGE_API_KEY");
  EXPECT_EQ(client_key(), "");
}

TEST_F(ApiKeyFile, MustHoldUsableKeys) {
  EXPECT_EQ(load("").error().code, Code::kInvalidArgument);
  EXPECT_EQ(load("# nothing\n").error().code, Code::kInvalidArgument);
  const auto short_key = load("long-enough\nshort\n");
  ASSERT_FALSE(short_key);
  EXPECT_THAT(short_key.error().message, ::testing::HasSubstr("key 2 is shorter than 8"));
  EXPECT_THAT(short_key.error().message, ::testing::Not(::testing::HasSubstr("short\n")));
  EXPECT_EQ(ApiKeys::load("/nowhere/keys").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace jige::api
