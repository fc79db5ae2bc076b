// Agents and the commands that drive them, over this machine's loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "integration/process.h"
#include "integration/solo_rates.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

constexpr rlim_t kAgentBytes = rlim_t{320} << 20;  // of address space

// `jige profile agent` on a free port.
class Agent {
 public:
  Agent()
      : process_({"profile", "agent", "--listen", "127.0.0.1:0", "--token", "t", "--json"},
                 folder_.path()) {
    for (int i = 0; i < 2000 && process_.running(); ++i) {
      const std::string text = exists(folder_ / "out") ? read_text(folder_ / "out") : "";
      if (text.ends_with("\n")) {
        address_ = parse_json(text, "agent")->at("listening").get<std::string>();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no agent: " << read_text(folder_ / "err");
  }
  const std::string& address() const { return address_; }
  pid_t pid() const { return process_.pid(); }
  Outcome stop() {
    process_.send(SIGINT);
    return process_.wait();
  }

 private:
  TestFolder folder_;
  Process process_;
  std::string address_;
};

TEST(Agents, HostsAreProfiledPlannedAndReduced) {
  Agent a, b, c;
  const std::string hosts = "a=" + a.address() + ",b=" + b.address() + ",c=" + c.address();
  const TestFolder folder;
  const std::string store = folder / "links.jsonl";
  const std::vector<std::string> to = {"--hosts", hosts,     "--token",          "t",
                                       "--store", store,     "--transfer-bytes", "256K",
                                       "--json",  "--quiet", "--set-seconds",    "0.2"};
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), to.begin(), to.end());
    return run_jige(words);
  };
  ASSERT_EQ(expect_solo_rates(run, 6).size(), 6u);

  const std::string plan = folder / "ring.json";
  const Outcome planned = run({"plan", "rings", "--budget-seconds", "2", "--message", "16K",
                               "--collective", "all-to-all", "-o", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json ring = *parse_json(read_text(plan), plan);
  EXPECT_EQ(ring["rates"], "measured");
  EXPECT_EQ(ring["ring"]["order"].size(), 3u);
  EXPECT_GT(ring["ring"]["collective"].get<double>(), 0);
  EXPECT_GT(ring["baselines"]["rank order"]["collective"].get<double>(), 0);
  EXPECT_GT(ring["all_to_all"]["collective"].get<double>(), 0);
  EXPECT_GT(ring["trees"]["collective_s"].get<double>(), 0);
  EXPECT_GE(ring["trees"]["bytes_max"].get<int64_t>(), 0);

  const Outcome reduced = run({"profile", "links", "all-reduce", "--devices", "c,a,b"});
  ASSERT_EQ(reduced.exit_code, 0) << reduced.err;
  EXPECT_EQ(reduced.json()["order"], Json({"c", "a", "b"}));
  EXPECT_EQ(reduced.json()["seconds"].size(), 3u);

  // What is known of the network can be given as well; then it belongs to the fingerprint.
  const std::string slurm = folder / "topology.conf";
  write_text(slurm, "SwitchName=leaf Nodes=[a-c]\n");
  EXPECT_THAT(run({"profile", "links", "solo", "--topology", slurm}).err, HasSubstr("no list of"));
  write_text(slurm, "SwitchName=leaf Nodes=a,b,c\n");
  const std::vector<std::string> set = {"profile",  "links",      "set", "--set",
                                        "a>c:send", "--topology", slurm};
  EXPECT_THAT(run(set).err, HasSubstr("- component network router"));
  write_text(slurm, "SwitchName=leaf Nodes=a,b,c,d\n");
  EXPECT_THAT(run(set).err, HasSubstr("host \"d\" is none of --hosts"));

  EXPECT_EQ(c.stop().exit_code, 0);
  const Outcome gone = run({"profile", "links", "set", "--set", "a>c:send", "--timeout", "1"});
  EXPECT_EQ(gone.exit_code, 8);
  EXPECT_THAT(gone.err, HasSubstr("agent of c"));
}

// What an agent cannot allocate is an error of whoever asked, not its end.
TEST(Agents, GoOnWithoutMemoryForACollective) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space themselves";
  Agent a, b;
  for (const Agent* agent : {&a, &b}) {
    const rlimit tight{kAgentBytes, kAgentBytes};
    ASSERT_EQ(prlimit(agent->pid(), RLIMIT_AS, &tight, nullptr), 0);
  }
  const std::string hosts = "a=" + a.address() + ",b=" + b.address();
  const auto reduce = [&](const char* bytes) {
    return run_jige({"profile", "links", "all-reduce", "--hosts", hosts, "--token", "t",
                     "--transfer-bytes", bytes, "--timeout", "2"});
  };
  const Outcome much = reduce("256M");
  EXPECT_NE(much.exit_code, 0);
  EXPECT_THAT(much.err, HasSubstr("cannot do that now"));
  const Outcome little = reduce("1M");
  EXPECT_EQ(little.exit_code, 0) << little.err;
}

TEST(Agents, MistakesAreNamed) {
  EXPECT_THAT(run_jige({"profile", "links", "all-reduce", "--reference", "trunk-4host"}).err,
              HasSubstr("--hosts or --shm is missing"));
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--hosts", "a=127.0.0.1"}).err,
              HasSubstr("a link has two ends"));
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--hosts", "a=b=c"}).err,
              HasSubstr("a link has two ends"));
  EXPECT_EQ(run_jige({"profile", "links", "solo", "--hosts", "/nowhere"}).exit_code, 3);
  EXPECT_THAT(run_jige({"profile", "agent", "--listen", "127.0.0.1:99999"}).err,
              HasSubstr("--listen"));
  EXPECT_THAT(run_jige({"profile", "agent", "--listen", "192.0.2.1:1"}).err,
              HasSubstr("cannot listen"));
}

}  // namespace
}  // namespace jige::integration
