// `jige serve --plan`: what the server says of itself beside what the plan says, and plans that are
// damaged, for another model or from another machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
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

// A server that plans again, and its drift and last outcome when that is there.
class Replanning {
 public:
  Replanning(const std::string& plan, const std::string& folder)
      : server_({TinyRun::get().model(), "--threads", "1", "--kv-tokens", "512", "--plan", plan,
                 "--replan", "--replan-seconds", "0.5", "--replan-out", folder, "--json"}) {}

  Serving& server() { return server_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  Json top() const { return Json::parse(server_.get("/top").body); }

  // 600 requests, then more until it has planned as often as wanted.
  Json load_until(const char* prompts, const char* answers, int64_t plans) {
    for (int times = 0; times < 20; ++times) {
      const Outcome bench =
          run_jige({"bench", "serve", url(), "--users", "4", "-n", "600", "--prompt-tokens",
                    prompts, "--output-tokens", answers, "--vocab-size", "200"});
      EXPECT_EQ(bench.exit_code, 0) << bench.err;
      const Json replan = top()["replan"];
      int64_t made = 0;
      for (const char* outcome : {"switched", "kept", "infeasible", "failed"}) {
        made += replan[outcome].get<int64_t>();
      }
      if (made >= plans && !replan["planning"].get<bool>()) return replan;
    }
    ADD_FAILURE() << "it did not plan: " << top();
    return top()["replan"];
  }

 private:
  Serving server_;
};

// Prompts and answers of 4 to 20 and 2 to 8 tokens were planned for. Settings that somebody has
// made poor are left when they are planned for.
TEST(ServePlan, PlansAgainForOtherRequestsAndSwitches) {
  const TestFolder folder;
  const std::string plans = folder / "plans";
  const std::string plan =
      TinyPlan::get().with("poor.json", {{"policy", "static"}, {"max_batch", 1}});
  Replanning replanning(plan, plans);
  const std::string answer =
      replanning.server().post("/v1/completions", R"({"prompt":"A","max_tokens":9,"seed":1})").body;
  const Json replan = replanning.load_until("4:20", "20:40", 1);
  EXPECT_EQ(replan["switched"], 1) << replan;
  EXPECT_EQ(replan["last"]["outcome"], "switched");
  EXPECT_THAT(replan["last"]["text"], HasSubstr("in place of static, 1 answers at once"));
  const std::string file = replan["last"]["file"];
  EXPECT_EQ(file, plans + "/plan-1.json");
  const Json top = replanning.top();
  EXPECT_EQ(top["drift"]["drifted"], false) << top["drift"];
  const Json written = Json::parse(read_text(file));
  EXPECT_EQ(written["settings"], top["scheduling"]);
  EXPECT_GT(written["load"]["output_tokens_mean"], 19);
  EXPECT_THAT(replanning.server().get("/metrics").body,
              AllOf(HasSubstr("jige:replans_total{model_name=\"run\",outcome=\"switched\"} 1"),
                    HasSubstr("jige:plan_drifted{model_name=\"run\"} 0")));
  EXPECT_THAT(run_jige({"top", replanning.url(), "--once"}).out, HasSubstr("ago: switched"));
  const auto tokens_of = [](const std::string& body) { return Json::parse(body)["choices"]; };
  EXPECT_EQ(tokens_of(answer),
            tokens_of(replanning.server()
                          .post("/v1/completions", R"({"prompt":"A","max_tokens":9,"seed":1})")
                          .body));
  EXPECT_THAT(stop(replanning.server()), AllOf(HasSubstr("planned again in"), HasSubstr(file)));
  // What was written serves, and is not written over by the next server.
  Replanning next(file, plans);
  EXPECT_EQ(next.top()["scheduling"], written["settings"]);
  stop(next.server());
  EXPECT_EQ(read_text(file), written.dump(2) + "\n");
}

// Of the same requests, now with a bound that nothing keeps.
TEST(ServePlan, KeepsItsSettingsWhereNothingKeepsTheBounds) {
  const TestFolder folder;
  Json plan = TinyPlan::get().plan();
  plan["bounds"]["itl_ms"] = 1e-3;
  Replanning replanning(TinyPlan::get().write("tight.json", plan), folder / "plans");
  const Json replan = replanning.load_until("4:20", "20:40", 1);
  EXPECT_EQ(replan["infeasible"], 1) << replan;
  EXPECT_THAT(replan["last"]["text"], HasSubstr("no setting keeps the bounds"));
  EXPECT_EQ(replanning.top()["scheduling"], plan["settings"]);
  EXPECT_EQ(replanning.top()["drift"]["drifted"], true);
  EXPECT_FALSE(std::filesystem::exists(folder / "plans/plan-1.json"));
  EXPECT_THAT(stop(replanning.server()), HasSubstr("infeasible"));
}

TEST(ServePlan, PlanningAgainNeedsWhatThePlanWasSearchedAmong) {
  Json old = TinyPlan::get().plan();
  old.erase("search");
  const Outcome refused =
      serve_and_stop({TinyRun::get().model(), "--plan", TinyPlan::get().write("old.json", old),
                      "--replan", "--json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("old.json: does not say what it was searched among"),
                                 HasSubstr("jige plan serve -o")));
  const Outcome without = serve_and_stop({TinyRun::get().model(), "--replan", "--json"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("add --plan"));
  const Outcome folder = serve_and_stop({TinyRun::get().model(), "--plan", TinyPlan::get().file(),
                                         "--replan-out", "plans", "--json"});
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_THAT(folder.err, HasSubstr("is of --replan"));
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
