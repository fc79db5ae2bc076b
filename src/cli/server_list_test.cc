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

}  // namespace
}  // namespace jige::cli
