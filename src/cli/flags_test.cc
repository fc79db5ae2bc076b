#include "cli/flags.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/flags_help.h"
#include "cli/suggest.h"
#include "cli/table.h"

namespace jige::cli {
namespace {

struct Values {
  bool json = false;
  std::string folder, prompt = "hello", isa = "avx2";
  std::vector<std::string> files, stops;
  int64_t count = 4, bytes = 0;
  std::optional<int64_t> seed;
  double temperature = 0.5, top_p = 1;
};

// A command with one flag of every kind.
struct Sample {
  Values values;
  Flags flags{"sample"};

  Sample() {
    flags.about("Does a thing.");
    flags.text("FOLDER", values.folder, "where");
    flags.text("-p,--prompt TEXT", values.prompt, "what");
    flags.texts("--data FILE...", values.files, "inputs");
    flags.texts("--stop TEXT", values.stops, "ends");
    flags.integer("-n,--count N", values.count, {.min = 1, .max = 9}, "how many");
    flags.integer("--seed N", values.seed, {}, "which");
    flags.bytes("--memory SIZE", values.bytes, "limit");
    flags.section("Sampling");
    flags.number("--temperature T", values.temperature, {.min = 0, .max = 10}, "how wild");
    flags.number("--top-p P", values.top_p, {.min = 0, .max = 1, .above_min = true}, "mass");
    flags.choice("--isa NAME", values.isa, {"avx2", "avx512"}, "kernels");
    flags.toggle("--json", values.json, "print JSON");
    flags.example("jige sample here");
  }

  std::string error(const std::vector<std::string>& words) {
    const Status status = flags.parse(words);
    return status ? "" : status.error().message;
  }
};

TEST(Flags, ReadsEveryKindIntoItsTarget) {
  Sample sample;
  const Status status =
      sample.flags.parse({"here",     "-p",       "-x --y", "--data",        "a",  "b",
                          "--stop",   "one",      "--stop", "--two",         "-n", "3",
                          "--seed=7", "--memory", "1KiB",   "--temperature", "0",  "--top-p=0.5",
                          "--isa",    "avx512",   "--json"});
  ASSERT_TRUE(status) << status.error().message;
  const Values& values = sample.values;
  EXPECT_EQ(values.folder, "here");
  EXPECT_EQ(values.prompt, "-x --y");
  EXPECT_EQ(values.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values.stops, (std::vector<std::string>{"one", "--two"}));
  EXPECT_EQ(values.count, 3);
  EXPECT_EQ(values.seed, 7);
  EXPECT_EQ(values.bytes, 1024);
  EXPECT_EQ(values.temperature, 0);
  EXPECT_EQ(values.top_p, 0.5);
  EXPECT_EQ(values.isa, "avx512");
  EXPECT_TRUE(values.json);
  EXPECT_TRUE(sample.flags.given("--seed"));
  EXPECT_TRUE(sample.flags.given("FOLDER"));
}

TEST(Flags, TogglesAreTrueOrFalse) {
  for (const auto& [words, on] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{"here", "--json"}, true},
           {{"here", "--json=true"}, true},
           {{"here", "--json=false"}, false},
           {{"here", "--json", "--json=false"}, false},
           {{"here", "--json=false", "--json"}, true}}) {
    Sample sample;
    ASSERT_EQ(sample.error(words), "");
    EXPECT_EQ(sample.values.json, on) << words.back();
    EXPECT_EQ(sample.flags.given("--json"), on) << words.back();
  }
  for (const std::string& value :
       std::vector<std::string>{"1e300", "-1", "0", "1", "yes", "off", "0x10", "1,2", "TRUE"}) {
    Sample sample;
    EXPECT_EQ(
        sample.error({"here", "--json=" + value}),
        "--json: \"" + value + "\" is not true or false; leave the value out to switch it on");
  }
}

TEST(Flags, PositionalListsTakeEveryWord) {
  for (const char* spec : {"WHAT...", "[WHAT]..."}) {
    Flags flags("sample");
    std::vector<std::string> words;
    bool json = false;
    flags.texts(spec, words, "what");
    flags.toggle("--json", json, "print JSON");
    ASSERT_TRUE(flags.parse({"a", "--json", "b", "c"})) << spec;
    EXPECT_EQ(words, (std::vector<std::string>{"a", "b", "c"})) << spec;
  }
  Flags flags("sample");
  std::vector<std::string> words;
  flags.texts("[WHAT]...", words, "what");
  ASSERT_TRUE(flags.parse({}));
  EXPECT_TRUE(words.empty());
}

TEST(Flags, KeepsDefaultsOfWhatIsNotGiven) {
  Sample sample;
  ASSERT_TRUE(sample.flags.parse({"here"}));
  EXPECT_EQ(sample.values.prompt, "hello");
  EXPECT_EQ(sample.values.count, 4);
  EXPECT_FALSE(sample.values.seed);
  EXPECT_FALSE(sample.flags.given("--count"));
}

TEST(Flags, RefusesTheFirstThatWasGivenOfThoseWithoutAnEffect) {
  Sample sample;
  ASSERT_TRUE(sample.flags.parse({"here", "--seed", "7", "--json"}));
  EXPECT_TRUE(sample.flags.refuse({"--count", "--memory"}, "is of nothing"));
  const Status refused = sample.flags.refuse({"--count", "--json", "--seed"}, "is of nothing");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().message, "--json is of nothing");
}

TEST(Flags, TakesTheLastOfARepeatedFlag) {
  Sample sample;
  ASSERT_TRUE(sample.flags.parse({"here", "-n", "3", "--count", "5"}));
  EXPECT_EQ(sample.values.count, 5);
}

TEST(Flags, RefusesNamesThatAreEmpty) {
  std::string file;
  std::optional<std::string> name;
  std::vector<std::string> files;
  std::string data;
  const auto refused = [&](std::vector<std::string> words) -> std::string {
    Flags flags("try");
    flags.text("-o,--out FILE", file, "where");
    flags.text("--name NAME", name, "what");
    flags.texts("--data FILE...", files, "inputs");
    flags.text("[DATA]", data, "input");
    const Status status = flags.parse(words);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(refused({"--out", ""}), "--out is empty; give FILE, or leave it out");
  EXPECT_EQ(refused({"--out="}), "--out is empty; give FILE, or leave it out");
  EXPECT_EQ(refused({"--name", ""}), "--name is empty; give NAME, or leave it out");
  EXPECT_EQ(refused({"--data", "a", ""}), "--data is empty; give FILE, or leave it out");
  EXPECT_EQ(refused({""}), "DATA is empty; give a value, or leave it out");
  EXPECT_EQ(refused({"-o", "a", "--name", "b", "c"}), "");
  Sample sample;
  EXPECT_EQ(sample.flags.parse({""}).error().message, "FOLDER is empty; it must be given");
}

TEST(Flags, ReadsEmptyTexts) {
  Sample sample;
  ASSERT_TRUE(sample.flags.parse({"here", "--prompt", ""}));
  EXPECT_EQ(sample.values.prompt, "");
  Sample other;
  ASSERT_TRUE(other.flags.parse({"here", "--prompt=", "--json"}));
  EXPECT_EQ(other.values.prompt, "");
  EXPECT_TRUE(other.values.json);
}

TEST(Flags, NamesAnUnknownFlagAndTheNearest) {
  EXPECT_EQ(Sample().error({"here", "--tmperature", "1"}),
            "jige sample has no flag --tmperature; did you mean --temperature?; see jige sample "
            "--help");
  EXPECT_EQ(Sample().error({"--wrong"}), "jige sample has no flag --wrong; see jige sample --help");
}

TEST(Flags, NamesFlagValueAndRange) {
  EXPECT_EQ(Sample().error({"here", "-n", "10"}), "--count: 10 is out of range; it must be 1 to 9");
  EXPECT_EQ(Sample().error({"here", "-n", "3x"}), "--count: \"3x\" is not a whole number");
  EXPECT_EQ(Sample().error({"here", "-n", "99999999999999999999"}),
            "--count: 99999999999999999999 is out of range; it must be 1 to 9");
  EXPECT_EQ(Sample().error({"here", "--top-p", "0"}),
            "--top-p: 0 is out of range; it must be above 0 and at most 1");
  EXPECT_EQ(Sample().error({"here", "--temperature", "nan"}),
            "--temperature: \"nan\" is not a number");
  EXPECT_EQ(Sample().error({"here", "--isa", "avx51"}),
            "--isa: \"avx51\" is not one of avx2, avx512; did you mean avx512?");
  EXPECT_NE(Sample().error({"here", "--memory", "lots"}).find("--memory"), std::string::npos);
}

TEST(Flags, SaysWhatIsMissingOrTooMuch) {
  EXPECT_EQ(Sample().error({}),
            "FOLDER is missing; usage: jige sample FOLDER [options], such as: jige sample here");
  EXPECT_EQ(Sample().error({"here", "there"}),
            "unexpected argument \"there\"; usage: jige sample FOLDER [options], such as: jige "
            "sample here");
  EXPECT_EQ(Sample().error({"here", "--seed"}), "--seed needs a value; see jige sample --help");
}

TEST(Flags, HelpShowsSectionsDefaultsAndExamplesInEightyColumns) {
  Sample sample;
  ASSERT_TRUE(sample.flags.parse({"--help"}));
  EXPECT_TRUE(sample.flags.help_asked());
  const std::string help = sample.flags.help();
  for (const char* part :
       {"Usage: jige sample FOLDER [options]", "-p, --prompt TEXT", "    --data FILE...", "[hello]",
        "\nSampling:\n", "avx2, avx512", "  jige sample here\n"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
  }
}

TEST(Flags, HelpAsAValueIsAValue) {
  Sample sample;
  ASSERT_TRUE(sample.flags.parse({"here", "--prompt", "--help"}));
  EXPECT_FALSE(sample.flags.help_asked());
  EXPECT_EQ(sample.values.prompt, "--help");
}

TEST(WrapText, BreaksAtSpacesAndIndentsFollowingLines) {
  EXPECT_EQ(wrap_text("aa bb cc dd", 2, 8), "aa bb\n  cc dd");
  EXPECT_EQ(wrap_text("a\nb", 1, 9), "a\n b");
  EXPECT_EQ(wrap_text("", 4, 9), "");
}

TEST(Suggest, CountsASwapAsOneStep) {
  EXPECT_EQ(edit_distance("chat", "chat"), 0);
  EXPECT_EQ(edit_distance("trian", "train"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Suggest, StaysSilentWhenNothingIsNear) {
  const std::vector<std::string> names = {"train", "tokenize", "chat"};
  EXPECT_EQ(nearest_name("chta", names), "chat");
  EXPECT_EQ(nearest_name("token", names), "tokenize");
  EXPECT_EQ(nearest_name("tokenizer-train", names), "tokenize");
  EXPECT_EQ(nearest_name("zzzz", names), "");
}

TEST(Table, PadsToTheWidestCellByCharacters) {
  Table table({{"part"}, {"size", Table::Align::kRight}});
  table.row({"é", "1"});
  table.rule();
  table.row({"long name", "12345"});
  EXPECT_EQ(table.render(),
            "  part        size\n"
            "  ─────────  ─────\n"
            "  é              1\n"
            "  ─────────  ─────\n"
            "  long name  12345\n");
}

TEST(Flags, NamesTheBoundThatAHugeNumberPasses) {
  const auto refused = [](const char* value) {
    Flags flags("try");
    int64_t count = 0;
    flags.integer("--count N", count, {}, "how many");
    return flags.parse({"--count", value}).error().message;
  };
  EXPECT_NE(refused("99999999999999999999").find("0 to 922"), std::string::npos);
  EXPECT_NE(refused("-1").find("at least 0"), std::string::npos);
}

TEST(Flags, AListWithoutValuesDoesNotTakeTheNextFlag) {
  Flags flags("try");
  std::vector<std::string> files;
  std::string out;
  flags.texts("--data FILE...", files, "files");
  flags.text("--out FOLDER", out, "where");
  EXPECT_NE(flags.parse({"--data", "--out", "x"}).error().message.find("--data needs a value"),
            std::string::npos);
  EXPECT_TRUE(flags.parse({"--data", "a", "b", "--out", "x"}));
  EXPECT_EQ(files, (std::vector<std::string>{"a", "b"}));
}

TEST(Flags, AnArgumentTooManyIsNamedBehindDashesToo) {
  Flags flags("try");
  EXPECT_NE(flags.parse({"--", "x"}).error().message.find("unexpected argument \"x\""),
            std::string::npos);
}

}  // namespace
}  // namespace jige::cli
