// What a machine is made of by its sources, and rates between processes of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "integration/ended_by_signal.h"
#include "integration/process.h"
#include "integration/solo_rates.h"

namespace jige::integration {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// An environment variable while this lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

// After the layout of hwloc, written by us: two nodes with a GPU each.
constexpr const char* kBox = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003"
          allowed_cpuset="0x00000003" nodeset="0x00000003" complete_nodeset="0x00000003"
          allowed_nodeset="0x00000003" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001"
            nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001"
              nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3"
              local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001"
              nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001"
                nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
      </object>
      <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[16-17]">
        <object type="Bridge" gp_index="11" bridge_type="1-1" depth="1" bridge_pci="0000:[17-17]"
                pci_busid="0000:16:01.0" pci_type="0604 [8086:347a] [0000:0000] 06"
                pci_link_speed="0.500000">
          <object type="PCIDev" gp_index="12" pci_busid="0000:17:00.0"
                  pci_type="0302 [10de:2235] [10de:145a] a1" pci_link_speed="4.000000"/>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002"
            nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="6">
      <object type="NUMANode" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002"
              nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="7"
              local_memory="1073741824"/>
      <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002"
              nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="8">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002"
                nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="9"/>
      </object>
      <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[80-81]">
        <object type="PCIDev" gp_index="22" pci_busid="0000:81:00.0"
                pci_type="0302 [10de:2235] [10de:145a] a1" pci_link_speed="4.000000"/>
      </object>
    </object>
  </object>
</topology>
)";

Json component(const Json& description, const std::string& name) {
  for (const Json& c : description.value("components", Json::array())) {
    if (c.value("name", "") == name) return c;
  }
  ADD_FAILURE() << "no " << name << " in " << description.dump();
  return {};
}

TEST(Links, ANameOfAFileStaysInItsLine) {
  const TestFolder folder;
  const std::string file = folder / "box.json";
  Json box = run_jige({"topology", "--reference", "pcie-4gpu-2numa", "--json"}).json();
  box.erase("fingerprint");
  box["name"] = "box\nall links are fast";
  write_text(file, box.dump());
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"topology", "--file", file},
        {"profile", "links", "solo", "--topology", file},
        {"plan", "rings", "--topology", file}}) {
    const Outcome shown = run_jige(words);
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("box\\nall links are fast")) << words[0];
  }
}

TEST(Links, AMachineIsReadFromHwlocsFile) {
  const TestFolder folder;
  const std::string file = folder / "box.xml";
  write_text(file, kBox);
  const Outcome shown = run_jige({"topology", "--file", file});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("└─ port-0000.16.01.0  root port, numa 0"));
  EXPECT_THAT(shown.out, HasSubstr("   └─ gpu0  device, numa 0, 0000:17:00.0, link 4 GB/s"));
  const Outcome planned = run_jige({"plan", "rings", "--topology", file, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.json()["ring"]["order"].size(), 2u);

  write_text(file, std::string(kBox).substr(0, 900));
  const Outcome cut = run_jige({"topology", "--file", file});
  EXPECT_EQ(cut.exit_code, 4);
  EXPECT_THAT(cut.err, HasSubstr("box.xml:"));
  EXPECT_THAT(run_jige({"topology", "--file", file, "--source", "hwloc"}).err,
              HasSubstr("--source is of this machine"));
  EXPECT_THAT(run_jige({"topology", "--source", "lspci"}).err, HasSubstr("is not one of auto"));
}

// libhwloc reads the file in place of this machine; the driver is tests/fakes/fake_nvml.cc.
TEST(Links, HwlocAndNvmlShowOneMachine) {
  const TestFolder folder;
  write_text(folder / "box.xml", kBox);
  const Setting machine("HWLOC_XMLFILE", folder / "box.xml");
  const Outcome without = run_jige({"topology", "--source", "hwloc", "--json"});
  if (without.exit_code == 5) GTEST_SKIP() << without.err;
  ASSERT_EQ(without.exit_code, 0) << without.err;
  EXPECT_EQ(component(without.json(), "gpu1").value("address", ""), "0000:81:00.0");

  const Outcome missing = run_jige({"topology", "--source", "hwloc+nvml"});
  if (missing.exit_code == 0) GTEST_SKIP() << "there is a real driver";
  EXPECT_THAT(missing.err, HasSubstr("libnvidia-ml.so.1"));
  const Setting libraries("LD_LIBRARY_PATH", JIGE_FAKES);
  const Setting script("JIGE_FAKE_NVML",
                       "driver=555.42 gpu=0:17:0,1,4,16,16 gpu=0:81:0,1,4,16,16 "
                       "nvlink=0,2,3,0,0:81:0 nvlink=1,2,3,0,0:17:0");
  const Outcome with = run_jige({"topology", "--source", "hwloc+nvml", "--json"});
  ASSERT_EQ(with.exit_code, 0) << with.err;
  EXPECT_EQ(with.json()["environment"]["driver"], "555.42");
  EXPECT_NE(with.json()["fingerprint"], without.json()["fingerprint"]);
  EXPECT_THAT(run_jige({"topology", "--source", "hwloc+nvml"}).out,
              HasSubstr("gpu0-gpu1-nvlink  nvlink, 50 GB/s"));
}

TEST(Links, ThisMachineIsReadByEverySource) {
  for (const char* source : {"auto", "sysfs", "hwloc"}) {
    const Outcome shown = run_jige({"topology", "--source", source, "--json"});
    if (shown.exit_code == 5) continue;  // built without hwloc, or no sysfs
    ASSERT_EQ(shown.exit_code, 0) << source << ": " << shown.err;
    EXPECT_EQ(component(shown.json(), "numa0")["kind"], "memory") << source;
  }
}

TEST(Links, ProcessesOfThisMachineAreProfiled) {
  const TestFolder folder;
  const std::string store = folder / "links.jsonl";
  const auto run = [&](std::vector<std::string> words) {
    for (const char* word : {"--shm", "3", "--set-seconds", "0.2", "--json"}) words.push_back(word);
    words.insert(words.end(), {"--store", store});
    return run_jige(words);
  };
  ASSERT_EQ(expect_solo_rates(run, 6).size(), 6u);
  const Outcome planned = run({"plan", "rings", "--budget-seconds", "2"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.json()["rates"], "measured");
  EXPECT_GT(planned.json()["ring"]["collective"].get<double>(), 0);
  const Outcome reduced = run({"profile", "links", "all-reduce", "--devices", "rank2,rank0,rank1"});
  ASSERT_EQ(reduced.exit_code, 0) << reduced.err;
  EXPECT_EQ(reduced.json()["order"], Json({"rank2", "rank0", "rank1"}));

  const Outcome other = run_jige({"profile", "links", "solo", "--shm", "2", "--store", store});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("- component rank2 host"));
}

// A store that claims what the machine does not reach: found before anything is added to it.
TEST(Links, RowsFromBeforeAChangeAreMarkedAsOutdated) {
  const TestFolder folder;
  const std::string store = folder / "links.jsonl";
  const std::vector<std::string> solo = {"profile", "links",         "solo", "--shm",   "2",
                                         "--quiet", "--set-seconds", "0.2",  "--store", store};
  ASSERT_EQ(run_jige(solo).exit_code, 0);
  const std::string text = *read_file(store);
  const std::string head = text.substr(0, text.find('\n') + 1);
  // So much lower than what is measured that no uncertainty of that covers it.
  const std::string claim = head + R"({"set":["rank0>rank1:send"],"rate":0.002,"gb_per_s":[0.002]})"
                                   "\n";
  ASSERT_TRUE(write_file_atomic(store, claim));
  const Outcome table = run_jige(solo);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("2 sets, 1 measured now, 1 kept from before"));
  EXPECT_THAT(table.out, ContainsRegex("rank0>rank1:send +0.00200 +outdated"));
  EXPECT_THAT(table.out, HasSubstr("was 0.002, is "));
  EXPECT_THAT(table.out, HasSubstr("run this again for the 1 outdated"));
  ASSERT_TRUE(write_file_atomic(store, claim));
  std::vector<std::string> lines = solo;
  lines.push_back("--json");
  const JsonLines rows = run_jige(lines).json_lines();
  ASSERT_EQ(rows.size(), 2u) << "one a set";
  EXPECT_LT(rows[0]["epoch"], rows[1]["epoch"]);
}

// The driver is tests/fakes/fake_cuda.cc.
TEST(Links, GpusAreProfiledAndPlanned) {
  const TestFolder folder;
  const std::string box = folder / "box.xml", store = folder / "gpus.jsonl";
  write_text(box, kBox);
  const Outcome none = run_jige({"profile", "links", "solo", "--gpus", "--topology", box});
  if (none.exit_code == 0) GTEST_SKIP() << "there is a real driver";
  const Setting libraries("LD_LIBRARY_PATH", JIGE_FAKES);
  const Setting script("JIGE_FAKE_CUDA", "gpu=0000:17:00.0,0.1,0.5 gpu=0000:81:00.0,0.1,0.5");
  const auto run = [&](std::vector<std::string> words) {
    for (const char* word :
         {"--gpus", "--set-seconds", "0.1", "--transfer-bytes", "2M", "--json"}) {
      words.push_back(word);
    }
    words.insert(words.end(), {"--topology", box, "--store", store});
    return run_jige(words);
  };
  // Push, pull and two memories, each way, by copy engine.
  const auto engines = [&](std::vector<std::string> words) {
    words.push_back("--no-kernels");
    return run(std::move(words));
  };
  for (const Json& line : expect_solo_rates(engines, 8)) {
    EXPECT_THAT(line["set"][0].get<std::string>(), HasSubstr("+copy"));
  }
  const Outcome planned = engines({"plan", "rings"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.json()["rates"], "measured");
  EXPECT_THAT(planned.json().dump(), HasSubstr("+copy"));

  // The same by kernels, which are faster here: a plan takes them. Builds without nvcc have none.
  const Outcome all = run({"profile", "links", "solo"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  if (all.json_lines().size() == 8u) GTEST_SKIP() << "this build has no copy kernel";
  EXPECT_EQ(all.json_lines().size(), 16u);
  const Outcome fastest = run({"plan", "rings"});
  ASSERT_EQ(fastest.exit_code, 0) << fastest.err;
  EXPECT_THAT(fastest.json()["ring"].dump(), Not(HasSubstr("+copy")));
}

// GPUs that the driver does not let reach each other: ways through the memories are left.
TEST(Links, GpusWithoutPeerAccessArePlannedThroughMemory) {
  const TestFolder folder;
  const std::string box = folder / "box.xml";
  write_text(box, kBox);
  if (run_jige({"profile", "links", "solo", "--gpus", "--topology", box}).exit_code == 0) {
    GTEST_SKIP() << "there is a real driver";
  }
  const Setting libraries("LD_LIBRARY_PATH", JIGE_FAKES);
  const Setting script("JIGE_FAKE_CUDA",
                       "gpu=0000:17:00.0,0.1,0.5 gpu=0000:81:00.0,0.1,0.5 nopeer=0,1 nopeer=1,0");
  const Outcome planned =
      run_jige({"plan", "rings", "--gpus", "--set-seconds", "0.1", "--transfer-bytes", "2M",
                "--json", "--topology", box, "--store", folder / "gpus.jsonl", "--no-kernels"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.json()["ring"].dump(), HasSubstr("via-numa"));
}

TEST(Links, MistakesOverProcessesAreNamed) {
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--shm", "1"}).err,
              HasSubstr("--shm: places must be 2 to 64, not 1"));
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--shm", "cpu0,core1"}).err,
              HasSubstr("\"core1\" is no [NAME=]cpuN"));
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--shm", "2", "--source", "sysfs"}).err,
              HasSubstr("--source is of this machine's parts"));
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--shm", "2", "--hosts", "a=b,c=d"}).err,
              HasSubstr("--hosts and --shm do not go together; give one of --hosts, --shm, --mpi, "
                        "--gpus"));
  EXPECT_THAT(
      run_jige({"profile", "links", "all-reduce", "--shm", "2", "--devices", "rank0,rank0"}).err,
      HasSubstr("--devices: \"rank0\" is there twice"));
  EXPECT_THAT(run_jige({"profile", "links", "all-reduce"}).err,
              HasSubstr("--hosts or --shm is missing"));
  EXPECT_THAT(run_jige({"profile", "links", "all-reduce", "--shm", "2", "--devices", "rank1"}).err,
              HasSubstr("has 1 to run it over, it needs two"));
  const TestFolder folder;
  const std::string box = folder / "box.json";
  ASSERT_TRUE(write_file_atomic(
      box, R"({"format":"jige.topology","version":1,"components":[{"name":"n","kind":"nic"}]})"));
  EXPECT_THAT(run_jige({"profile", "links", "all-reduce", "--shm", "2", "--topology", box}).err,
              HasSubstr("has 0 to run it over, it needs two"));
}

// Flags that one kind of meter understands go with no other.
TEST(Links, FlagsOfAnotherMeterAreRefused) {
  const auto refusal = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"profile", "links", "solo"});
    const Outcome outcome = run_jige(words);
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  EXPECT_THAT(refusal({"--shm", "2", "--mpirun", "x"}),
              HasSubstr("--mpirun goes with --mpi, not with --shm"));
  EXPECT_THAT(refusal({"--mpi", "2", "--token", "x"}),
              HasSubstr("--token goes with --hosts, not with --mpi"));
  EXPECT_THAT(refusal({"--gpus", "--congestion", "bbr"}),
              HasSubstr("--congestion goes with --hosts, not with --gpus"));
  EXPECT_THAT(refusal({"--reference", "pcie-4gpu-2numa", "--kernel-blocks", "2"}),
              HasSubstr("--kernel-blocks goes with --gpus, not with simulated rates"));
  EXPECT_THAT(refusal({"--hosts", "a=b,c=d", "--noise", "0.1"}),
              HasSubstr("--noise goes with simulated rates, not with --hosts"));
  EXPECT_THAT(refusal({"--mpi", "2", "--gpus"}), HasSubstr("--mpi and --gpus do not go together"));
  const Outcome nodes =
      run_jige({"plan", "rings", "--nodes", "pcie-4gpu-2numa", "pcie-4gpu-2numa", "--shm", "2"});
  EXPECT_THAT(nodes.err, HasSubstr("--nodes goes with simulated rates, not with --shm"));
}

TEST(Links, SignalsEndAllProcesses) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    SCOPED_TRACE(signal);
    expect_signal_ends({"profile", "links", "solo", "--shm", "2", "--set-seconds", "60",
                        "--transfer-bytes", "2G", "--timeout", "100"},
                       signal, 2);
  }
}

}  // namespace
}  // namespace jige::integration
