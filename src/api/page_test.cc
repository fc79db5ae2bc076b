// The page to chat in: how it is served, to whom, and what its files promise.
#include "api/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "api/service_test_support.h"
#include "base/ascii.h"

namespace jige::api {
namespace {

using testing::completion_body;
using testing::fetch;
using ::testing::HasSubstr;
using testing::json_of;
using ::testing::Not;
using testing::request_text;
using testing::TestClient;
using testing::TestResponse;
using testing::TestServer;
using testing::TestServerOptions;

TestServerOptions with_page(OwnPage own = {}) {
  TestServerOptions options;
  options.service.page = true;
  options.http.origins.admit_own(std::move(own));
  return options;
}

// A request of a page of `origin` to the server under the name `host`.
TestResponse ask(const TestServer& server, std::string_view host, std::string_view origin,
                 std::string_view more = "") {
  const std::string body = completion_body(1, 2);
  TestClient client(server.port());
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: {}\r\nOrigin: {}\r\n{}"
                  "Content-Length: {}\r\n\r\n{}",
                  host, origin, more, body.size(), body));
  return client.read_response();
}

TEST(Page, IsServedWithWhatKeepsItApart) {
  TestServer server(with_page());
  EXPECT_THAT(server.get("/").body, HasSubstr("<!doctype html>"));
  EXPECT_GT(page_files().size(), 5u);
  for (const PageFile& file : page_files()) {
    const TestResponse whole = server.get(file.path);
    EXPECT_EQ(whole.status, 200) << file.path;
    EXPECT_EQ(whole.body, file.body) << file.path;
    EXPECT_EQ(whole.field("Content-Type"), file.content_type);
    EXPECT_EQ(whole.field("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(whole.field("Cache-Control"), "no-cache");
    EXPECT_EQ(whole.field("Referrer-Policy"), "no-referrer");
    const std::string policy = whole.field("Content-Security-Policy");
    for (const char* rule : {"default-src 'none'; ", "script-src 'self'; ", "style-src 'self'; ",
                             "connect-src 'self'; ", "base-uri 'none'; ", "form-action 'none'; ",
                             "frame-ancestors 'none'; ", "require-trusted-types-for 'script'; "}) {
      EXPECT_THAT(policy, HasSubstr(rule));
    }
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(whole.head, Not(HasSubstr("Access-Control")));
  }
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("handler=\"/\",status=\"200\""));
}

TEST(Page, IsTakenFromTheBrowserWhereItHasItAlready) {
  TestServer server(with_page());
  std::set<std::string> tags;
  for (const PageFile& file : page_files()) {
    TestClient client(server.port());
    client.send(request_text("HEAD", file.path));
    const TestResponse head = client.read_response(/*head_only=*/true);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.field("Content-Length"), std::to_string(file.body.size()));
    const std::string tag = head.field("ETag");
    EXPECT_TRUE(tags.insert(tag).second) << file.path << " has the tag of another file";
    // On the same connection: no byte of a body stands between the answers.
    client.send(request_text("GET", file.path, "", "If-None-Match: \"other\", " + tag + "\r\n"));
    const TestResponse same = client.read_response(/*head_only=*/true);
    EXPECT_EQ(same.status, 304);
    EXPECT_EQ(same.field("ETag"), tag);
    EXPECT_EQ(same.field("Content-Length"), "");
    client.send(request_text("GET", file.path, "", "If-None-Match: \"other\"\r\n"));
    EXPECT_EQ(client.read_response().body, file.body);
  }
}

TEST(Page, NeedsNoKeyAndTheApiDoes) {
  TestServerOptions options = with_page();
  options.service.keys = ApiKeys({"a-secret-key"});
  TestServer server(std::move(options));
  for (const PageFile& file : page_files()) EXPECT_EQ(server.get(file.path).status, 200);
  for (const char* path : {"/top", "/v1/models", "/page/", "/page/nothing.js"}) {
    EXPECT_EQ(server.get(path).status, 401) << path;
  }
  EXPECT_EQ(server.post("/v1/completions", completion_body(1, 2)).status, 401);
  const TestResponse posted = server.post("/", "{}");
  EXPECT_EQ(posted.status, 405);
  EXPECT_EQ(posted.field("Allow"), "GET, HEAD");
}

TEST(Page, IsThereWhileTheModelLoads) {
  TestServerOptions options = with_page();
  options.with_model = false;
  TestServer server(std::move(options));
  EXPECT_EQ(server.get("/").status, 200);
  EXPECT_EQ(json_of(server.get("/top").body)["loading"], true);
}

TEST(Page, GivesNothingButItsFiles) {
  TestServer server(with_page());
  for (const char* path :
       {"/page", "/page/", "/page/index.html", "/index.html", "//", "/.", "/page/../page/main.js",
        "/page/..%2fpage.cc", "/page/%2e%2e/service.cc", "/page//main.js", "/page/main.js/",
        "/page/main.js%00", "/page/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
        "/page/MAIN.JS", "/page/main.js.map"}) {
    EXPECT_EQ(server.get(path).status, 404) << path;
  }
  EXPECT_EQ(server.get("/page/main%2ejs?query").status, 200) << "the same name, spelled otherwise";
}

TEST(Page, MayBeSwitchedOff) {
  TestServer server;
  for (const PageFile& file : page_files()) EXPECT_EQ(server.get(file.path).status, 404);
  const std::string host = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(ask(server, host, "http://" + host).status, 403);
}

TEST(Page, UsesTheServerThatShowsIt) {
  const TestServer server(with_page({.names = {"gpu-box"}}));
  for (const char* host : {"127.0.0.1:8000", "localhost:8000", "[::1]:8000", "10.1.2.3",
                           "gpu-box:8000", "GPU-Box:8000"}) {
    const std::string origin = "http://" + lower_ascii(host);
    EXPECT_EQ(ask(server, host, origin).status, 200) << host;
    EXPECT_EQ(ask(server, host, lower_ascii("https://" + std::string(host))).status, 200) << host;
    for (const std::string& other :
         {origin + "1", origin + ".evil.example", std::string("http://evil.example"),
          std::string("http://localhost"), std::string("null"), std::string("http://"),
          "ftp://" + lower_ascii(host), lower_ascii(host), origin + "/"}) {
      EXPECT_EQ(ask(server, host, other).status, 403) << host << " " << other;
    }
  }
}

// A page whose own name was made to lead to this server, after it was loaded from elsewhere.
TEST(Page, IsNotToBeMistakenForOneWhoseNameLeadsHere) {
  const TestServer open(with_page({.names = {"gpu-box"}}));
  for (const char* host : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                           "localhost.evil.example", "gpu-box.evil.example", "127.0.0.1x:8000",
                           "x127.0.0.1", "gpu", "[evil", "evil]:8000", ""}) {
    EXPECT_EQ(ask(open, host, "http://" + std::string(host)).status, 403) << host;
  }
  // Where keys are asked for it has none, and the server may be reached by any name.
  TestServerOptions options = with_page({.any_name = true});
  options.service.keys = ApiKeys({"a-secret-key"});
  const TestServer locked(std::move(options));
  const std::string key = "Authorization: Bearer a-secret-key\r\n";
  EXPECT_EQ(ask(locked, "evil.example", "http://evil.example").status, 401);
  EXPECT_EQ(ask(locked, "gpu.lab.example", "https://gpu.lab.example", key).status, 200);
  EXPECT_EQ(ask(locked, "gpu.lab.example", "https://evil.example", key).status, 403);
}

TEST(Page, LearnsWhetherTheModelChats) {
  TestServer chats;
  EXPECT_EQ(json_of(chats.get("/v1/models").body)["data"][0]["chat_template"], true);
  TestServer plain({.with_model = false});
  ServedModel model = testing::test_model();
  model.chat_template.reset();
  plain.set_model(std::move(model));
  EXPECT_EQ(json_of(plain.get("/v1/models/tiny").body)["chat_template"], false);
  TestServer vectors({.embeds = true});
  const Json entry = json_of(vectors.get("/v1/models").body)["data"][0];
  EXPECT_EQ(entry["type"], "embedding");
  EXPECT_FALSE(entry.contains("chat_template"));
}

TEST(Page, HasFilesThatCanBeRead) {
  for (const PageFile& file : page_files()) {
    if (file.path == "/") continue;  // pictures have no spaces to break lines at
    const auto lines = std::ranges::count(file.body, '\n');
    EXPECT_LE(lines, 500) << file.path;
    for (size_t begin = 0; begin < file.body.size();) {
      const size_t end = std::min(file.body.find('\n', begin), file.body.size());
      EXPECT_LE(end - begin, 100u) << file.path << ": " << file.body.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

// What the browser is forbidden by the policy is not tried either, and nothing comes from
// elsewhere.
TEST(Page, LoadsItselfAloneAndMakesNoMarkupOfTexts) {
  size_t bytes = 0;
  for (const PageFile& file : page_files()) {
    bytes += file.body.size();
    for (const char* word : {"innerHTML",      "outerHTML",     "insertAdjacentHTML",
                             "document.write", "DOMParser",     "eval(",
                             "Function(",      "setTimeout(\"", "srcdoc",
                             "javascript:",    "import(",       "@import",
                             "url(",           "src=\"http",    "from \"http",
                             "fetch(\"http",   "cookie",        " style=\"",
                             " onclick",       " onload",       " onerror"}) {
      EXPECT_THAT(std::string(file.body), Not(HasSubstr(word))) << file.path;
    }
    // Every file of the page that one of them names is there.
    for (const std::string_view mark : {" src=\"", "rel=\"stylesheet\" href=\"", " from \"./"}) {
      for (size_t at = file.body.find(mark); at != std::string_view::npos;
           at = file.body.find(mark, at + 1)) {
        const size_t begin = at + mark.size();
        std::string name(file.body.substr(begin, file.body.find('"', begin) - begin));
        if (!name.starts_with("page/")) name = "page/" + name;
        EXPECT_NE(find_page_file("/" + name), nullptr) << file.path << " names " << name;
      }
    }
  }
  EXPECT_LT(bytes, 65'000u);  // 60,000 before images
}

}  // namespace
}  // namespace jige::api
