#include "cli/server_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts_of(std::string_view file) {
  std::vector<std::string> texts;
  for (const PlacedText& line : list_lines(file, "f"))
    texts.push_back(line.place + "=" + line.text);
  return texts;
}

std::vector<api::HttpPeer> peers_of(const std::vector<std::string>& urls) {
  std::vector<api::HttpPeer> peers;
  const auto servers = read_servers(list_values(urls, "--to"), "--to");
  for (const ListedServer& server : *servers) {
    peers.push_back(server.peer);
  }
  return peers;
}

TEST(ServerList, ReadsALineForEach) {
  EXPECT_THAT(texts_of("# ours\n http://a:1 \r\n\n\thttp://b:2"),
              ElementsAre("f:2=http://a:1", "f:4=http://b:2"));
  EXPECT_THAT(texts_of(""), ElementsAre());
  EXPECT_THAT(texts_of(" \n#\n"), ElementsAre());
}

TEST(ServerList, RefusesWhatCannotBe) {
  const auto error_of = [](std::string_view file) {
    const auto peers = read_servers(list_lines(file, "servers.txt"), "servers.txt");
    return peers ? std::string() : peers.error().message;
  };
  EXPECT_EQ(error_of("http://127.0.0.1:1\nhttp://127.0.0.1:2"), "");
  EXPECT_THAT(error_of("# none"), HasSubstr("servers.txt: names no server"));
  EXPECT_THAT(error_of("http://127.0.0.1:1\n\n127.0.0.1:1/v1"),
              HasSubstr("servers.txt:3: http://127.0.0.1:1 is there twice"));
  EXPECT_THAT(error_of("#\nhttp://127.0.0.1:port"),
              HasSubstr("servers.txt:2: \"http://127.0.0.1:port\" is no address of a server: "
                        "its port is no number from 1 to 65535; give it as http://HOST:PORT"));
  EXPECT_EQ(error_of("https://127.0.0.1:1\nhttp://127.0.0.1:1"), "") << "two addresses";
  EXPECT_EQ(error_of("http://no-such-host.invalid:80"), "") << "nothing is looked up";
}

// Who is at fault is named first.
TEST(ServerList, TellsTheAddressFromTheAuthorities) {
  const auto error_of = [](const char* url) {
    return resolve_server({url, "--to"}, "/nowhere/ca.pem").error().message;
  };
  EXPECT_TRUE(error_of("https://127.0.0.1:1").starts_with("--server-ca: /nowhere/ca.pem"));
  EXPECT_TRUE(error_of("https://a..b").starts_with("--to: \"https://a..b\" is no address"));
  EXPECT_TRUE(error_of("https://no-such-host.invalid").starts_with("--to: https://no-such"));
  const auto listed = read_servers({{"https://a", "list:7"}}, "list", "/nowhere/ca.pem");
  EXPECT_TRUE(listed.error().message.starts_with("--server-ca: /nowhere/ca.pem"));
}

std::string keys_given(const std::string& text, std::vector<std::string> urls) {
  const auto keys = ServerKeys::parse(text, "keys.txt");
  if (!keys) return keys.error().message;
  auto peers = peers_of(urls);
  keys->give(peers);
  std::string given;
  for (const api::HttpPeer& peer : peers) given += peer.api_key + ";";
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
      {"secret1\nsecret2", "keys.txt:2: a second one for all"},
      {"http://a:1 secret\nhttp://b:2", "keys.txt:2: a URL without a key"},
      {"http://a:1 secret http://b:2", "keys.txt:1: a URL without a key"},
      {"http://a:1 secret1 secret2", "keys.txt:1: a line is KEY"},
      {"secret1 secret2", "keys.txt:1: a line is KEY"},
      {"\n\nhttp://a:port secret", "keys.txt:3: \"http://a:port\" is no address of a server"},
      {"http://a:1 secret1\nhttp://a:1/v1 secret2", "keys.txt:2: http://a:1 is there twice"},
      {"secret\x01", "keys.txt:1: has characters"},
      {"http://a:1 secr\xc3\xa9t", "keys.txt:1: has characters"}};
  for (const auto& [text, message] : bad) {
    const std::string told = keys_given(text, {"http://127.0.0.1:1"});
    EXPECT_THAT(told, HasSubstr(message)) << text;
    EXPECT_THAT(told, ::testing::Not(HasSubstr("secr"))) << text;
  }
  const auto keys = ServerKeys::parse("http://127.0.0.1:1 a\nhttp://127.0.0.1:2 b", "keys.txt");
  EXPECT_THAT(keys->others(peers_of({"http://127.0.0.1:2"})), ElementsAre("http://127.0.0.1:1"));
}

}  // namespace
}  // namespace jige::cli
