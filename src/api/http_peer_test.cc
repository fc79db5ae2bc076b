// Addresses of servers as people write them: what is taken, what is refused, and what is said then.
#include "api/http_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "api/http_client.h"
#include "api/played_server.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"

namespace jige::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HttpPeer, ReadsAddresses) {
  const auto peer = HttpPeer::resolve("http://127.0.0.1:8123/base/v1/");
  ASSERT_TRUE(peer) << peer.error().message;
  EXPECT_EQ(peer->host, "127.0.0.1:8123");
  EXPECT_EQ(peer->base, "/base");
  EXPECT_EQ(HttpPeer::resolve("127.0.0.1")->host, "127.0.0.1:80");
  EXPECT_EQ(HttpPeer::resolve("http://[::1]:81")->host, "[::1]:81");
  EXPECT_EQ(HttpPeer::resolve("http://127.0.0.1:8123/base/v1/")->url(),
            "http://127.0.0.1:8123/base");
}

TEST(HttpPeer, TellsWhichUrlsAreOne) {
  for (const char* url : {"http://127.0.0.1:8123/base/v1/", "https://127.0.0.1/v1", "[::1]:5"}) {
    EXPECT_EQ(HttpPeer::url_of(url).value(), HttpPeer::resolve(url)->url()) << url;
  }
  const std::pair<const char*, const char*> urls[] = {
      {"https://no.such.host/", "https://no.such.host:443"},
      {"http://a:080/v1/v1//", "http://a:80"},
      {"http://a/v1/b/", "http://a:80/v1/b"},
      {"a_b-c.d.", "http://a_b-c.d.:80"},
      {"http://[::ffff:1.2.3.4]/x", "http://[::ffff:1.2.3.4]:80/x"},
      {"http://[fe80::1%eth0]:80", "http://[fe80::1%eth0]:80"},
      {"http://[fe80::1%25eth0]:80", "http://[fe80::1%eth0]:80"}};
  for (const auto& [url, same] : urls) EXPECT_EQ(HttpPeer::url_of(url).value_or(""), same) << url;
}

// A zone is a matter of this machine, and so is the dot of a complete name.
TEST(HttpPeer, NamesTheHostAsItsCertificateDoes) {
  const auto local = HttpPeer::resolve("http://[fe80::1%lo]:81");
  ASSERT_TRUE(local) << local.error().message;
  EXPECT_EQ(local->name, "fe80::1");
  if (const auto complete = HttpPeer::resolve("http://localhost.:81")) {  // not found everywhere
    EXPECT_EQ(complete->name, "localhost");
  }
  testing::PlayedServer server("HTTP/1.1 204 No Content\r\n\r\n");
  auto peer = HttpPeer::resolve(server.url());
  peer->host = "[fe80::1%eth0]:81";
  EXPECT_TRUE(fetch(*peer, {}, 10));
  server.join();
  EXPECT_THAT(server.last_request, HasSubstr("\r\nHost: [fe80::1]:81\r\n"));
}

TEST(HttpPeer, SaysWhatIsWrongWithAnAddress) {
  const std::string label(64, 'x');
  std::string long_name = "a";
  while (long_name.size() <= 253) long_name += ".a";
  const std::pair<std::string, const char*> bad[] = {
      {"", "it has no host"},
      {"http://", "it has no host"},
      {"http://:80", "it has no host"},
      {"https:///v1", "it has no host"},
      {"http://a:0", "its port is no number from 1 to 65535"},
      {"http://a:", "its port"},
      {"http://a:99999", "its port"},
      {"http://a:80x", "its port"},
      {"http://a:+80", "its port"},
      {"http://a b", "characters that no host has"},
      {"http://a_b..c:80", "nothing before or between two dots"},
      {"http://.a", "nothing before or between two dots"},
      {"http://a..", "nothing before or between two dots"},
      {"http://.", "nothing before or between two dots"},
      {"http://b\xc3\xbc"
       "cher.example",
       "names of other scripts begin with xn--"},
      {"http://a\x01", "characters that no host has"},
      {std::string("http://a\0b", 10), "characters that no host has"},
      {"http://a%20b", "characters that no host has"},
      {"http://" + label + ".example", "64 characters between dots, of 63 at most"},
      {"http://" + long_name, "255 characters, of 253 at most"},
      {"http://::1:80", "an IPv6 address stands in brackets, as in http://[::1]:8000"},
      {"http://fe80::1", "an IPv6 address stands in brackets"},
      {"http://[::1", "a [ without a ]"},
      {"http://[]", "no IPv6 address"},
      {"http://[a.b]:80", "no IPv6 address"},
      {"http://[127.0.0.1]:80", "no IPv6 address"},
      {"http://[::1]x:80", "something follows its ]"},
      {"http://[::1]]", "something follows its ]"},
      {std::string("http://[::1\0]", 13), "no IPv6 address"},
      {"http://[fe80::1%]", "no name of a network interface"},
      {"http://[fe80::1%25]", "no name of a network interface"},
      {"http://[fe80::1%a b]", "no name of a network interface"},
      {std::string("http://[fe80::1%a\0b]:80", 23), "no name of a network interface"},
      {std::string("http://a:8\0", 11), "its port"},
      {std::string("http://a/b\0c", 12), "characters that no path has"},
      {"http://[fe80::1%sixteen_is_1_too]", "no name of a network interface"},
      {"ftp://a", "it begins with neither http:// nor https://"},
      {"http://a?x=1", "its path has a query"},
      {"http://a/#x", "its path has a query"},
      {"http://a/\r\nX: y", "characters that no path has"},
      {"http://a/\xff", "characters that no path has"}};
  for (const auto& [url, why] : bad) {
    const auto none = HttpPeer::resolve(url);
    ASSERT_FALSE(none) << url;
    EXPECT_EQ(none.error().code, Code::kInvalidArgument) << url;
    EXPECT_THAT(none.error().message, HasSubstr(why)) << url;
    EXPECT_THAT(none.error().message, HasSubstr("give it as http://HOST:PORT")) << url;
    EXPECT_LT(none.error().message.size(), 400u) << url;
  }
}

TEST(HttpPeer, TellsNoPassword) {
  for (const char* url :
       {"http://me:secret@a:80", "http://secret@a", "https://a:secret@b@c/", "secret@a"}) {
    const auto none = HttpPeer::url_of(url);
    ASSERT_FALSE(none) << url;
    EXPECT_THAT(none.error().message, HasSubstr("a user and a password have no place in it"));
    EXPECT_THAT(none.error().message, Not(HasSubstr("secret")));
  }
}

TEST(HttpPeer, TellsNoQuery) {
  for (const char* url : {"http://a:80/v1?key=secret", "a?secret", "http://a:99999/?x?secret"}) {
    const auto none = HttpPeer::url_of(url);
    ASSERT_FALSE(none) << url;
    EXPECT_THAT(none.error().message, HasSubstr("?...\" is no address of a server"));
    EXPECT_THAT(none.error().message, Not(HasSubstr("secret")));
  }
}

// Where that is so nobody has to wait for what finds names.
TEST(HttpPeer, KnowsAddressesWithoutLookingThemUp) {
  for (const char* url : {"http://127.0.0.1:81/base", "https://10.0.0.5", "http://[::1]:81",
                          "http://[fe80::1%25lo]:81"}) {
    const auto read = HttpPeer::read(url), found = HttpPeer::resolve(url);
    ASSERT_TRUE(read && found) << url;
    EXPECT_GT(read->address.bytes, 0U) << url;
    EXPECT_TRUE(read->address == found->address) << url;
    EXPECT_EQ(read->url(), found->url());
    EXPECT_EQ(read->name, found->name);
  }
  const auto named = HttpPeer::read("http://localhost:81");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->address.bytes, 0U);
  EXPECT_EQ(named->url(), "http://localhost:81");
  EXPECT_GT(HttpPeer::look_up("http://localhost:81")->bytes, 0U);
  EXPECT_EQ(HttpPeer::read("http://no-such-host.invalid")->address.bytes, 0U);
  EXPECT_EQ(HttpPeer::look_up("http://no-such-host.invalid").error().code, Code::kUnavailable);
  EXPECT_EQ(HttpPeer::read("http://a b").error().code, Code::kInvalidArgument);
  EXPECT_EQ(HttpPeer::look_up("http://a b").error().code, Code::kInvalidArgument);
  EXPECT_FALSE(HttpPeer::read("https://127.0.0.1", "/nowhere/ca.pem"));
}

// Of what is taken nothing can forge a field or a message, and it reads as what it is written as.
TEST(HttpPeer, SurvivesSpoiltAddresses) {
  int taken = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(8'000); ++seed) {
    static constexpr const char* kGood[] = {"http://llm.example:8000/base/v1", "10.0.0.5:80",
                                            "https://[fe80::1%25eth0]:443/v1"};
    const std::string url = Mutator(seed).mutate(kGood[seed % 3]);
    const auto read = HttpPeer::url_of(url);
    const std::string& told = read ? *read : read.error().message;
    EXPECT_TRUE(std::ranges::none_of(told, [](unsigned char c) { return c < ' ' || c == 127; }))
        << seed;
    if (!read) continue;
    ++taken;
    EXPECT_TRUE(std::ranges::all_of(told, [](unsigned char c) { return c < 127; })) << seed;
    EXPECT_EQ(HttpPeer::url_of(*read).value_or("refused"), *read) << seed << ": " << url;
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace jige::api
