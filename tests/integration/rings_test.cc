// Topologies, link profiles and ring plans as a user makes them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/process.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

TEST(Rings, ThisMachineHasATopology) {
  const Outcome outcome = run_jige({"topology", "--json"});
  if (outcome.exit_code == 5) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["format"], "jige.topology");
}

TEST(Rings, AReferenceIsWrittenReadDrawnAndPlanned) {
  const TestFolder folder;
  const std::string box = folder / "box.json", svg = folder / "box.svg";
  const Outcome made =
      run_jige({"topology", "--reference", "pcie-4gpu-2numa-interleaved", "-o", box, "--svg", svg});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("└─ gpu0  device, numa 0, link 12.5 GB/s"));
  EXPECT_THAT(*read_file(svg), HasSubstr("<svg "));

  const std::string plan = folder / "ring.json", graph = folder / "graph.xml";
  const Outcome planned = run_jige({"plan", "rings", "--topology", box, "-o", plan, "--export-nccl",
                                    graph, "--svg", folder / "ring.svg"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("all rates simulated"));
  EXPECT_THAT(planned.out, HasSubstr("rank order"));
  EXPECT_THAT(planned.out, HasSubstr("no other ring is faster"));
  const Json json = *parse_json(*read_file(plan), plan);
  EXPECT_EQ(json["rates"], "simulated");
  EXPECT_GT(json["ring"]["rate"].get<double>(),
            1.2 * json["baselines"]["rank order"]["rate"].get<double>());
  EXPECT_THAT(*read_file(graph), HasSubstr("<graph id=\"1\" pattern=\"3\""));
  EXPECT_THAT(*read_file(graph + ".env"), HasSubstr("NCCL_GRAPH_FILE=" + graph));
}

// A shell that reads the file gets the path as it is, and runs nothing that stands in it.
TEST(Rings, TheEnvironmentForNcclIsReadByAShellWhateverThePath) {
  const TestFolder folder;
  const std::string graph = folder / "it's a $(touch made);graph.xml";
  const Outcome planned =
      run_jige({"plan", "rings", "--reference", "pcie-4gpu-2numa", "--export-nccl", graph});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const auto read =
      run_process({"sh", "-c", "cd \"$1\" && set -a && . \"$2\" && printenv NCCL_GRAPH_FILE", "sh",
                   folder.path(), graph + ".env"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->out, graph + "\n") << read->err;
  EXPECT_FALSE(exists(folder / "made"));
}

TEST(Rings, AProfileIsKeptResumedAndRefusedElsewhere) {
  const TestFolder folder;
  const std::string store = folder / "links.jsonl";
  const std::vector<std::string> solo = {"profile",         "links",   "solo", "--reference",
                                         "pcie-4gpu-2numa", "--store", store};
  EXPECT_THAT(run_jige(solo).out, HasSubstr("48 sets, 48 measured now, rates simulated"));
  std::string text = *read_file(store);
  ASSERT_TRUE(write_file_atomic(store, text.substr(0, text.size() - 20)));  // killed while writing
  EXPECT_THAT(run_jige(solo).out, HasSubstr("48 sets, 1 measured now, 47 kept from before"));
  std::vector<std::string> lines = solo;
  lines.push_back("--json");
  const JsonLines kept = run_jige(lines).json_lines();
  ASSERT_EQ(kept.size(), 48u);
  EXPECT_EQ(kept[0]["kept"], true);
  EXPECT_EQ(kept[0]["repeats"], 9);
  ASSERT_EQ(kept[0]["gb_per_s"].size(), 1u);
  EXPECT_EQ(kept[0]["gb_per_s"][0], kept[0]["rate"]);
  const Outcome foreign =
      run_jige({"plan", "rings", "--reference", "pcie-4gpu-4numa-3110", "--store", store});
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("What differs:\n  - component"));
  const Outcome pair =
      run_jige({"profile", "links", "all-subsets", "--reference", "pcie-4gpu-2numa", "--set",
                "gpu0>gpu1:push,gpu0>gpu2:push", "--json"});
  EXPECT_EQ(pair.json_lines().size(), 3u);
  EXPECT_NEAR(pair.json_lines().back()["rate"].get<double>(), 6.25, 1e-6);
}

TEST(Rings, WhereThereIsNothingToMeasureSaysWhatElseThereIs) {
  const TestFolder folder;
  const std::string box = folder / "box.json";
  ASSERT_TRUE(write_file_atomic(box, R"({"format":"jige.topology","version":1,"name":"box",
      "components":[{"name":"memory","kind":"memory","numa":0}],"links":[]})"));
  for (const char* command : {"profile", "plan"}) {
    const Outcome none =
        run_jige({command, command == std::string("plan") ? "rings" : "links", "--topology", box});
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_THAT(none.err, HasSubstr("box has no GPU and no host to move data between; --shm 4"));
  }
}

TEST(Rings, WhatCannotBeWrittenIsRefusedBeforeAnythingIsMeasured) {
  const TestFolder folder;
  const std::string store = folder / "links.jsonl";
  const Outcome nowhere = run_jige({"plan", "rings", "--reference", "trunk-4host", "--store", store,
                                    "-o", folder / "absent/ring.json"});
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("absent to write it to"));
  EXPECT_FALSE(std::filesystem::exists(store));
  const Outcome hosts = run_jige({"plan", "rings", "--reference", "trunk-4host", "--store", store,
                                  "--export-nccl", folder / "graph.xml"});
  EXPECT_THAT(hosts.err, HasSubstr("NCCL joins GPUs, these are hosts"));
  EXPECT_EQ(std::ranges::count(*read_file(store), '\n'), 1) << "the head alone";
  const Outcome none = run_jige({"plan", "rings", "--reference", "trunk-4host", "--no-collective"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--no-collective is about the all-reduces"));
  for (const auto& [flag, beside] :
       {std::pair("--export-nccl", ".env"), {"--export-msccl", ".trees"}}) {
    const std::string out = folder / "out.xml";
    std::filesystem::create_directory(out + beside);
    const Outcome taken = run_jige({"plan", "rings", "--reference", "pcie-4gpu-2numa", "--message",
                                    "4K", flag, out, "--store", folder / "box.jsonl"});
    EXPECT_EQ(taken.exit_code, 2);
    EXPECT_THAT(taken.err, HasSubstr(out + beside + ": is a folder"));
    EXPECT_FALSE(std::filesystem::exists(folder / "box.jsonl"));
  }
}

// NCCL copies by kernels, so there is no graph of these; the plan is there, though.
TEST(Rings, APlanThatCannotBeExportedIsKept) {
  const TestFolder folder;
  const std::string box = folder / "box.json", plan = folder / "ring.json";
  ASSERT_EQ(run_jige({"topology", "--reference", "pcie-4gpu-2numa", "-o", box}).exit_code, 0);
  Json description = *parse_json(*read_file(box), box);
  for (Json& component : description["components"]) {
    if (component["kind"] == "device") component["copy_engine_gb_per_s"] = 10;
  }
  ASSERT_TRUE(write_file_atomic(box, dump_json(description)));
  const Outcome outcome =
      run_jige({"plan", "rings", "--topology", box, "--copy-engines", "--no-kernels", "-o", plan,
                "--export-nccl", folder / "graph.xml"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("stock NCCL has no transports for this ring"));
  EXPECT_THAT(outcome.out, HasSubstr("rank order"));
  EXPECT_TRUE(std::filesystem::exists(plan));
}

TEST(Rings, TreesThatAreNeverFasterAreNotExported) {
  const TestFolder folder;
  const std::string algorithm = folder / "rings.xml";
  ASSERT_TRUE(write_file_atomic(algorithm + ".trees", "of before"));
  const Outcome planned = run_jige({"plan", "rings", "--reference", "trunk-4host", "--message",
                                    "4K", "--latency-us", "0", "--export-msccl", algorithm});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("rings are faster at every size"));
  EXPECT_FALSE(std::filesystem::exists(algorithm + ".trees"));
  EXPECT_THAT(*read_file(algorithm), HasSubstr("minBytes=\"1\""));
}

// Gains below the tolerance are not looked for, and the claim says so.
TEST(Rings, WhatIsClaimedOfOtherRingsGoesAsFarAsTheSearch) {
  std::vector<std::string> words = {"plan", "rings", "--reference", "two-trunk-4host"};
  EXPECT_THAT(run_jige(words).out,
              HasSubstr("no other ring is faster: measured sets exclude them all"));
  words.insert(words.end(), {"--tolerance", "0.3"});
  EXPECT_THAT(run_jige(words).out,
              HasSubstr("by its transfers no other ring is more than 30.0 % faster: measured sets "
                        "exclude them all"));
}

TEST(Rings, MachinesThatDifferShareARing) {
  const Outcome outcome =
      run_jige({"plan", "rings", "--nodes", "pcie-8gpu-2numa", "pcie-8gpu-4numa", "pcie-8gpu-2numa",
                "--devices", "gpu0,gpu1,gpu4", "--rails", "--budget-seconds", "5", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["machines"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["machines"][i]["exit"], json["machines"][(i + 1) % 3]["entry"]);
    EXPECT_EQ(json["machines"][i]["transfers"].size(), 4u);  // in, twice on, out
  }
  EXPECT_GT(json["rate"].get<double>(), 1);
  EXPECT_THAT(run_jige({"plan", "rings", "--nodes", "pcie-4gpu-2numa", "pcie-4gpu-2numa"}).err,
              HasSubstr("has no NIC"));
}

TEST(Rings, SeveralRingsArePlannedExportedAndRun) {
  const TestFolder folder;
  const std::string plan = folder / "rings.json", algorithm = folder / "rings.xml";
  const Outcome planned =
      run_jige({"plan", "rings", "--reference", "two-trunk-4host", "--rings", "2", "--collective",
                "all-to-all", "--message", "4K", "-o", plan, "--export-msccl", algorithm});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("chosen: mixture 1"));
  EXPECT_THAT(planned.out, HasSubstr("ring both ways"));
  EXPECT_THAT(planned.out, HasSubstr("all-to-all"));
  EXPECT_THAT(planned.out, HasSubstr("channels of the rings: 1, 1"));
  EXPECT_THAT(planned.out, HasSubstr("double trees 2 deep, steps of 10 us assumed"));
  EXPECT_THAT(*read_file(algorithm + ".trees"), HasSubstr("name=\"jige_double_trees\""));
  EXPECT_THAT(*read_file(algorithm), HasSubstr("coll=\"allreduce\""));
  const Json json = *parse_json(*read_file(plan), plan);
  ASSERT_EQ(json["rings"].size(), 2u);
  EXPECT_NEAR(json["mix"]["rate"].get<double>(), 2 * json["ring"]["rate"].get<double>(), 1e-6);
  EXPECT_EQ(json["rounds"].size(), 3u);
  EXPECT_FALSE(json["trees"].contains("bytes_max")) << "it was not measured";

  const Outcome ran = run_jige(
      {"bench", "collective", "all_reduce", "all_to_all", "reduce", "broadcast",   "--ranks",
       "4",     "--ring",     plan,         "-b",         "4K",     "-e",          "1M",
       "-f",    "16",         "-n",         "2",          "--json", "--transport", "threads"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.json_lines().front()["rings"].size(), 2u);
  EXPECT_GE(ran.json_lines().front()["tree_bytes_max"].get<int64_t>(), 0) << "measured at once";
  const Outcome five = run_jige({"bench", "collective", "--ranks", "5", "--ring", plan});
  EXPECT_EQ(five.exit_code, 2);
  EXPECT_THAT(five.err, HasSubstr("was planned for 4 devices, these are 5 ranks"));
  EXPECT_THAT(run_jige({"bench", "collective", "--ranks", "4", "--ring", plan, "0,1,2,3"}).err,
              HasSubstr("names all rings"));
}

TEST(Rings, SeveralRingsAreChannelsOfOneNcclGraph) {
  const TestFolder folder;
  const std::string graph = folder / "graph.xml";
  const Outcome planned = run_jige({"plan", "rings", "--reference", "pcie-4gpu-2numa", "--rings",
                                    "3", "--export-nccl", graph, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json json = planned.json();
  EXPECT_EQ(json["nccl"]["channels"].size(), json["rings"].size());
  int channels = 0;
  for (const Json& count : json["nccl"]["channels"]) channels += count.get<int>();
  EXPECT_THAT(*read_file(graph), HasSubstr(fmt::format("nchannels=\"{}\"", channels)));
}

TEST(Rings, TreesRunWithoutAPlan) {
  for (const char* size : {"0", "65536"}) {
    const Outcome ran =
        run_jige({"bench", "collective", "--ranks", "3", "--trees", "--tree-max", size,
                  "--direct-max", "0", "-b", "8", "-e", "128K", "-f", "16", "-n", "3", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(ran.json_lines().front()["tree_bytes_max"], std::string(size) == "0" ? 0 : 65536);
    for (const Json& line : ran.json_lines()) {
      if (!line.contains("out_of_place")) continue;
      EXPECT_EQ(line["out_of_place"]["wrong"], 0);
    }
  }
}

TEST(Rings, MistakesAreNamed) {
  const TestFolder folder;
  const std::string box = folder / "box.json";
  ASSERT_TRUE(write_file_atomic(
      box, R"({"format":"jige.topology","version":1,"components":[{"name":"a","kind":"host"}]})"));
  EXPECT_THAT(run_jige({"plan", "rings", "--topology", box}).err,
              HasSubstr("1 device to plan for"));
  EXPECT_THAT(run_jige({"plan", "rings", "--reference", "pcie-9gpu"}).err,
              HasSubstr("no reference topology \"pcie-9gpu\"; there are pcie-4gpu-2numa"));
  EXPECT_THAT(
      run_jige({"plan", "rings", "--reference", "trunk-4host", "--nccl-version", "2.9"}).err,
      HasSubstr("2.18 and later"));
  EXPECT_THAT(run_jige({"plan", "rings", "--topology", box, "--reference", "trunk-4host"}).err,
              HasSubstr("not both"));
  EXPECT_THAT(run_jige({"profile", "links", "set", "--reference", "pcie-4gpu-2numa"}).err,
              HasSubstr("--set is missing"));
  EXPECT_THAT(
      run_jige({"plan", "rings", "--reference", "pcie-4gpu-2numa", "--devices", "gpu0,gpu7"}).err,
      HasSubstr("no component \"gpu7\""));
  EXPECT_THAT(run_jige({"bench", "collective", "--ranks", "2", "-b", "32K", "-e", "1K"}).err,
              HasSubstr("--max-bytes is 1.00 KiB, less than --min-bytes, which is 32.0 KiB"));
}

}  // namespace
}  // namespace jige::integration
