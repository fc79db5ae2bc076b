// Load on a running server, the same in this process and on a virtual clock, and the live view.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string url_of(const Serving& server) {
  return "http://127.0.0.1:" + std::to_string(server.port());
}

TEST(Load, MeasuresARunningServer) {
  Serving server({TinyRun::get().model(), "--threads", "1"});
  const std::vector<std::string> bench = {
      "bench", "serve",           url_of(server), "--users",         "3",   "-n",
      "9",     "--prompt-tokens", "40",           "--output-tokens", "2:6", "--vocab-size",
      "200",   "--goodput",       "ttft=60000",   "--temperature",   "1.5", "--json"};
  EXPECT_EQ(run_jige(bench).exit_code, 0);
  const Outcome outcome = run_jige(bench);  // at once again: within the same second
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0]["subject"].get<std::string>(), HasSubstr("temperature 1.5"));
  const Json& load = lines[1];
  EXPECT_EQ(load["succeeded"], 9) << load;
  EXPECT_EQ(load["prompt_tokens"], 360);
  EXPECT_GE(load["output_tokens"], 18);
  EXPECT_LE(load["output_tokens"], 54);
  EXPECT_GT(load["ttft_s"]["p50"], 0);
  EXPECT_GE(load["e2e_s"]["p50"], load["ttft_s"]["p50"]);
  EXPECT_EQ(load["goodput_per_s"], load["requests_per_s"]);

  const Outcome top = run_jige({"top", url_of(server), "--once", "--json"});
  ASSERT_EQ(top.exit_code, 0) << top.err;
  EXPECT_EQ(top.json()["top"]["model"], "run");
  EXPECT_EQ(top.json()["prefix_hit_share"], 0.0) << "no prompt is like another";
  const Outcome frame = run_jige({"top", url_of(server), "--once"});
  EXPECT_THAT(frame.out, HasSubstr("accepting"));
  EXPECT_THAT(frame.out, HasSubstr("0 waiting"));

  const Outcome bad = run_jige({"bench", "serve", url_of(server), "--vocab-size", "999999999"});
  EXPECT_EQ(bad.exit_code, 8);
  EXPECT_THAT(bad.err, HasSubstr("--vocab-size"));
}

TEST(Load, ComparesPoliciesAndDrawsThem) {
  const TestFolder folder;
  const Outcome outcome = run_jige({"bench",
                                    "serve",
                                    "--random",
                                    "tiny",
                                    "--threads",
                                    "1",
                                    "-n",
                                    "6",
                                    "--sweep",
                                    "50,100",
                                    "--policies",
                                    "static,orca,chunked,rounds",
                                    "--round-steps",
                                    "2",
                                    "--prompt-tokens",
                                    "4:20",
                                    "--output-tokens",
                                    "1:6",
                                    "--kv-tokens",
                                    "512",
                                    "--temperature",
                                    "1",
                                    "--top-k",
                                    "20",
                                    "--svg",
                                    folder / "orca.svg"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* word : {"static", "orca", "chunked", "rounds", "50 /s", "100 /s", "random"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
  const std::string svg = read_text(folder / "orca.svg");
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, HasSubstr(">chunked<"));
  EXPECT_THAT(svg, HasSubstr("tiny (random)"));
}

TEST(Load, SimulatesTheSame) {
  const TestFolder folder;
  const std::vector<std::string> arguments = {"simulate", "serve", "--sweep",        "1,4",   "-n",
                                              "50",       "--svg", folder / "s.svg", "--json"};
  const Outcome outcome = run_jige(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 7u);
  for (const Json& line : lines) EXPECT_EQ(line["simulated"], true);
  EXPECT_EQ(lines[1]["subject"], "static");
  EXPECT_EQ(lines[6]["subject"], "chunked");
  EXPECT_EQ(lines[6]["succeeded"], 50);
  EXPECT_THAT(read_text(folder / "s.svg"), HasSubstr("SIMULATED"));
  EXPECT_EQ(run_jige(arguments).out, outcome.out) << "a simulation repeats";
  EXPECT_THAT(run_jige({"simulate", "serve", "--users", "2", "-n", "5"}).out,
              HasSubstr("SIMULATED"));
}

TEST(Load, ProfilesIterationsAndSimulatesByThem) {
  const TestFolder folder;
  const std::string file = folder / "step.json";
  const Outcome profile = run_jige({"profile", "serve", "--random", "tiny", "--threads", "1",
                                    "--seconds", "1", "--batch-tokens", "64", "--max-batch", "8",
                                    "--kv-tokens", "1024", "--context", "128", "-o", file});
  ASSERT_EQ(profile.exit_code, 0) << profile.err;
  EXPECT_THAT(profile.out, HasSubstr("tiny (random)"));
  EXPECT_THAT(profile.out, HasSubstr("mixed"));
  const Json written = Json::parse(read_text(file));
  EXPECT_EQ(written["format"], "jige.step-profile");
  EXPECT_EQ(written["limits"]["rows"], 64);
  EXPECT_EQ(written["machine"]["threads"], 1);
  EXPECT_GT(written["cells"].size(), 20u);

  // A plan needs a profile that is close; what is written may be told to be.
  Json close = written;
  close["held_out"]["all"]["mean"] = 0.05;
  write_text(folder / "close.json", close.dump());
  const Outcome planned =
      run_jige({"plan", "serve", "--profile", folder / "close.json", "--users", "4", "-n", "20",
                "--prompt-tokens", "40", "--output-tokens", "5", "--max-batch", "8",
                "--batch-tokens", "64", "--kv-tokens", "1024"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("SIMULATED as tiny (random)"));

  // The profile's error is the margin, unless another one is given.
  close["held_out"]["all"]["slower"] = 0.25;
  write_text(folder / "close.json", close.dump());
  std::vector<std::string> bounded = {"plan",
                                      "serve",
                                      "--profile",
                                      folder / "close.json",
                                      "-n",
                                      "20",
                                      "--prompt-tokens",
                                      "40",
                                      "--output-tokens",
                                      "5",
                                      "--max-batch",
                                      "8",
                                      "--batch-tokens",
                                      "64",
                                      "--kv-tokens",
                                      "1024",
                                      "--bound",
                                      "e2e=60000",
                                      "-o",
                                      folder / "plan.json"};
  EXPECT_THAT(run_jige(bounded).out, HasSubstr("bounds with a margin of 20.0 %: e2e "));
  EXPECT_DOUBLE_EQ(Json::parse(read_text(folder / "plan.json"))["bounds"]["margin"], 0.2);
  bounded.insert(bounded.end(), {"--margin", "0"});
  EXPECT_THAT(run_jige(bounded).out, HasSubstr("bounds: e2e "));
  EXPECT_EQ(Json::parse(read_text(folder / "plan.json"))["bounds"]["margin"], 0);

  close["held_out"]["all"]["mean"] = 0.2;
  write_text(folder / "far.json", close.dump());
  const Outcome refused = run_jige({"plan", "serve", "--profile", folder / "far.json"});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("20 % off"));

  const std::vector<std::string> simulate = {"simulate",  "serve",
                                             "--profile", file,
                                             "--users",   "4",
                                             "-n",        "20",
                                             "--json",    "--prompt-tokens",
                                             "40",        "--max-batch",
                                             "8",         "--batch-tokens",
                                             "64",        "--policies",
                                             "orca",      "--output-tokens",
                                             "5"};
  const Outcome simulated = run_jige(simulate);
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  const JsonLines lines = simulated.json_lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["base_s"], written["step"]["base_s"]);
  EXPECT_EQ(lines[1]["succeeded"], 20);
  EXPECT_EQ(run_jige(simulate).out, simulated.out) << "a simulation repeats";
  EXPECT_THAT(run_jige({"simulate", "serve", "--profile", file, "-n", "3"}).out,
              HasSubstr("SIMULATED as tiny (random)"));
  EXPECT_THAT(run_jige({"simulate", "serve", "--profile", file, "-n", "3"}).err,
              HasSubstr("more than 64 rows"));

  EXPECT_THAT(run_jige({"profile", "serve"}).err, HasSubstr("give one of MODEL and --random"));
  EXPECT_EQ(run_jige({"simulate", "serve", "--profile", folder / "none.json"}).exit_code, 3);
  EXPECT_THAT(
      run_jige({"simulate", "serve", "--profile", TinyRun::get().model() + "/config.json"}).err,
      HasSubstr("jige profile serve"));
}

// Plans, serves by the plan, and tells both beside one another.
TEST(Load, PlansWhatIsServed) {
  const TestFolder folder;
  const std::string file = folder / "plan.json";
  const std::vector<std::string> words = {"plan",
                                          "serve",
                                          "--users",
                                          "4",
                                          "-n",
                                          "40",
                                          "--prompt-tokens",
                                          "4:20",
                                          "--output-tokens",
                                          "2:8",
                                          "--kv-tokens",
                                          "512",
                                          "--bound",
                                          "itl=40,e2e=900",
                                          "-o",
                                          file};
  const Outcome planned = run_jige(words);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  for (const char* word : {"SIMULATED", "chosen", "usual", "in the way of more", "--policy "}) {
    EXPECT_THAT(planned.out, HasSubstr(word));
  }
  const std::string text = read_text(file);
  EXPECT_THAT(text, HasSubstr("\"format\": \"jige.serve-plan\""));
  std::vector<std::string> again = words;
  again.push_back("--json");
  const Outcome json = run_jige(again);
  EXPECT_EQ(json.json()["simulated"], true);
  EXPECT_EQ(json.json()["chosen"]["keeps_bounds"], true);
  EXPECT_EQ(read_text(file), text) << "a plan repeats";

  const Outcome bench =
      run_jige({"bench", "serve", "--random", "tiny", "--threads", "1", "--plan", file, "--users",
                "4", "-n", "8", "--prompt-tokens", "4:20", "--output-tokens", "2:8", "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_THAT(bench.err, Not(HasSubstr("another load")));
  const JsonLines lines = bench.json_lines();
  EXPECT_EQ(lines.back()["plan"]["requests_per_s"]["planned"],
            json.json()["chosen"]["prediction"]["requests_per_s"]);
  EXPECT_GT(lines.back()["plan"]["e2e_p99_s"]["measured"], 0);

  const Outcome never = run_jige({"plan", "serve", "--bound", "ttft=1", "-n", "20"});
  EXPECT_EQ(never.exit_code, 6);
  EXPECT_THAT(never.err, HasSubstr("no setting keeps the bounds"));
  EXPECT_THAT(never.err, HasSubstr("times as large could be kept"));
  const std::string flag = "--bound ";
  const size_t told = never.err.find(flag) + flag.size();
  ASSERT_GT(told, flag.size()) << never.err;
  const std::string could = never.err.substr(told, never.err.find(';', told) - told);
  EXPECT_EQ(run_jige({"plan", "serve", "--bound", could, "-n", "20"}).exit_code, 0) << could;
}

TEST(Load, ChecksTraces) {
  const Outcome outcome = run_jige({"simulate", "serve", "--traces", "500", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["traces"], 500);
  EXPECT_GT(outcome.json()["iterations"], 500);
}

TEST(Load, SaysWhatIsWrong) {
  EXPECT_EQ(run_jige({"bench", "serve"}).exit_code, 2);
  EXPECT_THAT(run_jige({"bench", "serve", "http://127.0.0.1:1", "--random", "tiny"}).err,
              HasSubstr("give one of"));
  for (const char* flag : {"--threads", "--max-batch", "--kv-tokens", "--top-k"}) {
    const Outcome other = run_jige({"bench", "serve", "http://127.0.0.1:1", flag, "16"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(other.err, HasSubstr(flag));
  }
  EXPECT_EQ(run_jige({"bench", "serve", "--random", "tiny", "--vocab-size", "9"}).exit_code, 2);
  EXPECT_EQ(run_jige({"bench", "serve", "http://127.0.0.1:1"}).exit_code, 8);
  EXPECT_EQ(run_jige({"bench", "serve", "https://127.0.0.1:1"}).exit_code, 8);
  EXPECT_EQ(run_jige({"bench", "serve", "ftp://127.0.0.1"}).exit_code, 2);
  EXPECT_EQ(run_jige({"top", "http://127.0.0.1:1", "--once"}).exit_code, 8);
  EXPECT_THAT(run_jige({"bench", "serve", "--random", "tiny", "--policies", "fifo"}).err,
              HasSubstr("--policies"));
  EXPECT_THAT(
      run_jige({"simulate", "serve", "--base-ms", "0", "--token-us", "0", "--kv-token-ns", "0"})
          .err,
      HasSubstr("--base-ms"));
}

}  // namespace
}  // namespace jige::integration
