// `jige serve --plan`: what the server says of itself beside what the plan says, and plans that are
// damaged, for another model or from another machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Profiled and planned once for all tests here, for the tiny run's model on this machine.
class TinyPlan {
 public:
  static const TinyPlan& get() {
    static const TinyPlan one;
    return one;
  }
  // A plan whose settings these are, as somebody edits the file.
  std::string with(const std::string& name, const Json& settings) const {
    Json plan = plan_;
    plan["settings"] = settings;
    return write(name, plan);
  }
  std::string write(const std::string& name, const Json& plan) const {
    const std::string path = folder_ / name;
    write_text(path, plan.dump());
    return path;
  }
  std::string file() const { return folder_ / "plan.json"; }
  const Json& plan() const { return plan_; }

 private:
  TinyPlan() {
    const std::string profile = folder_ / "step.json";
    const Outcome profiled =
        run_jige({"profile", "serve", TinyRun::get().model(), "--threads", "1", "--seconds", "0.5",
                  "--batch-tokens", "64", "--max-batch", "8", "--kv-tokens", "512", "-o", profile});
    EXPECT_EQ(profiled.exit_code, 0) << profiled.err;
    Json close = Json::parse(read_text(profile));
    close["held_out"]["all"]["mean"] = 0.05;  // what a busy machine has made of it is of no account
    write_text(profile, close.dump());
    const Outcome planned =
        run_jige({"plan",        "serve", "--profile",       profile, "--users",         "4",
                  "-n",          "300",   "--prompt-tokens", "4:20",  "--output-tokens", "2:8",
                  "--max-batch", "8",     "--batch-tokens",  "64",    "--kv-tokens",     "512",
                  "-o",          file()});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    plan_ = Json::parse(read_text(file()));
  }

  TestFolder folder_;
  Json plan_;
};

std::string stop(Serving& server) {
  server.process().send(SIGTERM);
  const Outcome outcome = server.process().wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.err;
}

// The server's own word: the event at its start and what anybody may ask it later.
TEST(ServePlan, TheServerRunsWithThePlansSettings) {
  const Json settings[] = {
      TinyPlan::get().plan()["settings"],
      {{"policy", "chunked"}, {"max_batch", 3}, {"batch_tokens", 32}},
      {{"policy", "rounds"}, {"max_batch", 5}, {"round_prompts", 2}, {"round_steps", 7}},
      {{"policy", "orca"}, {"max_batch", 2}},
      {{"policy", "static"}, {"max_batch", 4}}};
  for (const Json& wanted : settings) {
    const std::string plan = TinyPlan::get().with("edited.json", wanted);
    Serving server(
        {TinyRun::get().model(), "--threads", "1", "--kv-tokens", "512", "--plan", plan, "--json"});
    const std::string printed = server.out();
    const Json ready = Json::parse(printed.substr(printed.rfind('\n', printed.size() - 2) + 1));
    EXPECT_EQ(ready["event"], "ready");
    EXPECT_EQ(ready["scheduling"], wanted);
    EXPECT_EQ(Json::parse(server.get("/top").body)["scheduling"], wanted);
    const Outcome top =
        run_jige({"top", "http://127.0.0.1:" + std::to_string(server.port()), "--once"});
    EXPECT_THAT(top.out, HasSubstr("; " + wanted["policy"].get<std::string>() + ", max_batch " +
                                   wanted["max_batch"].dump()));
    EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"A","max_tokens":4})").status, 200);
    EXPECT_THAT(stop(server),
                AllOf(HasSubstr("edited.json: " + wanted["policy"].get<std::string>()),
                      Not(HasSubstr("warning"))));
  }
}

// Prompts of 4 to 20 tokens and answers of 2 to 8 were planned for.
TEST(ServePlan, RequestsThatAreOthersThanPlannedAreTold) {
  Serving server({TinyRun::get().model(), "--threads", "1", "--kv-tokens", "512", "--plan",
                  TinyPlan::get().file()});
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port());
  const auto load = [&](const char* prompts, const char* answers) {
    const Outcome bench =
        run_jige({"bench", "serve", url, "--users", "8", "-n", "300", "--prompt-tokens", prompts,
                  "--output-tokens", answers, "--vocab-size", "200"});
    EXPECT_EQ(bench.exit_code, 0) << bench.err;
    return Json::parse(server.get("/top").body)["drift"];
  };
  const Json as_planned = load("4:20", "2:8");
  EXPECT_EQ(as_planned["drifted"], false) << as_planned;
  EXPECT_GT(as_planned["looks"], 0);
  const Json longer = load("4:20", "6:14");
  EXPECT_EQ(longer["drifted"], true) << longer;
  EXPECT_GT(longer["answer_distance"], 0.2);
  EXPECT_LT(longer["prompt_distance"], 0.2);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("jige:plan_drifted{model_name=\"run\"} 1"));
  EXPECT_THAT(run_jige({"top", url, "--once"}).out, HasSubstr("OTHERS THAN PLANNED"));
  EXPECT_EQ(load("4:20", "2:8")["drifted"], false);
  EXPECT_THAT(stop(server), AllOf(HasSubstr("no longer like those that the plan was made for"),
                                  HasSubstr("again like those")));
}

TEST(ServePlan, WhatItSaysOfAnotherModelIsRefused) {
  Json other = TinyPlan::get().plan();
  other["model"]["layers"] = other["model"]["layers"].get<int>() + 1;
  const Outcome refused = serve_and_stop(
      {TinyRun::get().model(), "--plan", TinyPlan::get().write("other.json", other), "--json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("other.json: was made for"),
                                 HasSubstr("jige profile serve"), HasSubstr("--policy ")));
  EXPECT_THAT(refused.out, Not(HasSubstr("listening"))) << "before anything was loaded";
}

TEST(ServePlan, AnotherMachineOrOtherNumbersAreToldAndServed) {
  Json elsewhere = TinyPlan::get().plan();
  elsewhere["machine"]["processor"] = "Another One";
  elsewhere["machine"]["threads"] = 77;
  elsewhere["model"]["weights"] = "q4";
  const Outcome served =
      serve_and_stop({TinyRun::get().model(), "--threads", "1", "--kv-tokens", "256", "--plan",
                      TinyPlan::get().write("elsewhere.json", elsewhere), "--json"});
  EXPECT_EQ(served.exit_code, 0) << served.err;
  EXPECT_THAT(served.err, AllOf(HasSubstr("processor: Another One, now "),
                                HasSubstr("threads: 77, now 1"), HasSubstr("weights: q4, now none"),
                                HasSubstr("made for 512; plan again with --kv-tokens 256")));
}

TEST(ServePlan, DamagedPlansAreRefusedByField) {
  const auto refused = [](const std::string& path) {
    const Outcome outcome = serve_and_stop({TinyRun::get().model(), "--plan", path, "--json"});
    EXPECT_THAT(outcome.out, Not(HasSubstr("listening")));
    return outcome;
  };
  Json typo = TinyPlan::get().plan();
  typo["settings"]["max_bach"] = 5;
  const Outcome mistyped = refused(TinyPlan::get().write("typo.json", typo));
  EXPECT_EQ(mistyped.exit_code, 2);
  EXPECT_THAT(mistyped.err, HasSubstr("\"max_bach\" is no setting"));
  Json newer = TinyPlan::get().plan();
  newer["version"] = 99;
  EXPECT_EQ(refused(TinyPlan::get().write("newer.json", newer)).exit_code, 5);
  const std::string half = TinyPlan::get().write("half.json", newer);
  const std::string text = read_text(half);
  write_text(half, text.substr(0, text.size() / 2));
  EXPECT_EQ(refused(half).exit_code, 4);
  EXPECT_EQ(refused("/nowhere/plan.json").exit_code, 3);
}

}  // namespace
}  // namespace jige::integration
