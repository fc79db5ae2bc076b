// The page of `jige serve`: that it is told and can be switched off, and, where there is a browser,
// that it does what a person expects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "integration/image_folder.h"
#include "integration/process.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string address_of(const Serving& server) {
  return "http://127.0.0.1:" + std::to_string(server.port());
}

TEST(PageOfServe, IsToldAndSwitchedOff) {
  const std::string model = TinyRun::get().model();
  const Serving server({model});
  EXPECT_THAT(server.out(), HasSubstr("to chat in a browser open " + address_of(server) + "/\n"));
  EXPECT_THAT(server.get("/").body, HasSubstr("<!doctype html>"));
  const Serving without({model, "--no-page"});
  EXPECT_THAT(without.out(), Not(HasSubstr("browser")));
  EXPECT_EQ(without.get("/").status, 404);
  const Json listening = serve_and_stop({model, "--json"}).json_lines()[0];
  EXPECT_EQ(listening["page"], listening["address"].get<std::string>() + "/");
  EXPECT_EQ(serve_and_stop({model, "--json", "--no-page"}).json_lines()[0]["page"], nullptr);
}

TEST(PageOfServe, WorksInABrowser) {
  if (std::system("command -v chromium || command -v chromium-browser") != 0) {
    GTEST_SKIP() << "there is no chromium";
  }
  if (std::system((test_python() + " -c '' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "there is no " << test_python();
  }
  const std::string model = TinyRun::get().model();
  const TestFolder folder, image_folder;
  write_image_folder(image_folder.path());
  const std::string plain_model = TinyRun::get().copy_model(folder);
  write_text(plain_model + "/chat_template.jinja", "");
  write_text(folder / "keys", "a-key-of-tests\n");
  const Serving chat({model}), locked({model, "--api-key-file", folder / "keys"}),
      plain({plain_model}), vectors({model, "--embeddings"}), images({image_folder.path()});
  const std::string command =
      test_python() + " " + shell_quoted(JIGE_SOURCE_DIR "/tests/tools/check_page.py") +
      " --chat " + address_of(chat) + " --key " + address_of(locked) + " a-key-of-tests --plain " +
      address_of(plain) + " --vectors " + address_of(vectors) + " --images " + address_of(images) +
      " " + shell_quoted(picture_file("kept_table.gif"));
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "chromium does not start";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace jige::integration
