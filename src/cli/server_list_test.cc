#include "cli/server_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ServerList, ReadsALineForEach) {
  EXPECT_THAT(list_servers("# ours\n http://a:1 \r\n\n\thttp://b:2"),
              ElementsAre("http://a:1", "http://b:2"));
  EXPECT_THAT(list_servers(""), ElementsAre());
  EXPECT_THAT(list_servers(" \n#\n"), ElementsAre());
}

TEST(ServerList, RefusesWhatCannotBe) {
  const auto error_of = [](const std::vector<std::string>& urls) {
    const auto peers = resolve_servers(urls, "servers.txt");
    return peers ? std::string() : peers.error().message;
  };
  EXPECT_EQ(error_of({"http://127.0.0.1:1", "http://127.0.0.1:2"}), "");
  EXPECT_THAT(error_of({}), HasSubstr("servers.txt: names no server"));
  EXPECT_THAT(error_of({"http://127.0.0.1:1", "127.0.0.1:1/v1"}), HasSubstr("is there twice"));
  EXPECT_THAT(error_of({"http://127.0.0.1:port"}), HasSubstr("servers.txt: "));
  EXPECT_EQ(error_of({"https://127.0.0.1:1", "http://127.0.0.1:1"}), "") << "two addresses";
  const auto peers = resolve_servers({"https://127.0.0.1:1"}, "--to", "/nowhere/ca.pem");
  ASSERT_FALSE(peers);
  EXPECT_THAT(peers.error().message, HasSubstr("/nowhere/ca.pem"));
}

std::string keys_given(const std::string& text, std::vector<std::string> urls) {
  const auto keys = ServerKeys::parse(text, "keys.txt");
  if (!keys) return keys.error().message;
  auto peers = resolve_servers(urls, "--to");
  keys->give(*peers);
  std::string given;
  for (const api::HttpPeer& peer : *peers) given += peer.api_key + ";";
  return given;
}

TEST(ServerKeys, GivesEachServerItsOwn) {
  const std::vector<std::string> urls = {"http://127.0.0.1:1", "127.0.0.1:2/v1/",
                                         "https://127.0.0.1:1"};
  EXPECT_EQ(keys_given("secret-of-all\n", urls), "secret-of-all;secret-of-all;secret-of-all;");
  EXPECT_EQ(
      keys_given("# ours\nhttp://127.0.0.1:1/ first\n\n  http://127.0.0.1:2\t second \r\n", urls),
      "first;second;;")
      << "with and without TLS are two servers";
  EXPECT_EQ(keys_given("https://127.0.0.1:1 third\nrest", urls), "rest;rest;third;");
}

TEST(ServerKeys, RefusesWhatIsUnclearAndTellsNoKey) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "keys.txt: holds no key"},
      {"# none", "keys.txt: holds no key"},
      {"secret1\nsecret2", "keys.txt: key 2: a second one for all"},
      {"http://a:1 secret\nhttp://b:2", "keys.txt: key 2: a URL without a key"},
      {"http://a:1 secret http://b:2", "keys.txt: key 1: a URL without a key"},
      {"http://a:1 secret1 secret2", "keys.txt: key 1: a line is KEY"},
      {"secret1 secret2", "keys.txt: key 1: a line is KEY"},
      {"http://a:port secret", "keys.txt: key 1: a line is KEY"},
      {"http://a:1 secret1\nhttp://a:1/v1 secret2", "keys.txt: key 2: http://a:1 is there twice"},
      {"secret\x01", "keys.txt: key 1: has characters"},
      {"http://a:1 secr\xc3\xa9t", "keys.txt: key 1: has characters"}};
  for (const auto& [text, message] : bad) {
    const std::string told = keys_given(text, {"http://127.0.0.1:1"});
    EXPECT_THAT(told, HasSubstr(message)) << text;
    EXPECT_THAT(told, ::testing::Not(HasSubstr("secr"))) << text;
  }
  const auto keys = ServerKeys::parse("http://127.0.0.1:1 a\nhttp://127.0.0.1:2 b", "keys.txt");
  EXPECT_THAT(keys->others(*resolve_servers({"http://127.0.0.1:2"}, "--to")),
              ElementsAre("http://127.0.0.1:1"));
}

}  // namespace
}  // namespace jige::cli
