// Models in several GGUF files.
#include "formats/gguf_import.h"
#include "formats/gguf_test_support.h"

namespace jige::formats {
namespace {

std::string part_path(const ScratchFolder& folder, int number, int count) {
  return folder.file(fmt::format("small-{:05}-of-{:05}.gguf", number, count));
}

void write_parts(const ScratchFolder& folder, const std::vector<GgufBuilder>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    write_or_fail(part_path(folder, static_cast<int>(i + 1), static_cast<int>(parts.size())),
                  parts[i].bytes());
  }
}

TEST(GgufParts, AreOneModelWhicheverOfThemIsNamed) {
  const ScratchFolder folder;
  const std::string whole = folder.file("whole.gguf");
  write_or_fail(whole, small_gguf_llama().bytes());
  ASSERT_TRUE(import_gguf({.file = whole, .folder = folder.file("whole")}));
  for (const int count : {2, 3, 15}) {  // the last have parts without tensors
    write_parts(folder, small_gguf_llama().parts(static_cast<uint32_t>(count)));
    for (const int named : {1, count}) {
      const std::string out = folder.file(fmt::format("of-{}-by-{}", count, named));
      const auto made = import_gguf({.file = part_path(folder, named, count), .folder = out});
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->stored_types.at("F32"), 11);
      for (const std::string& name : folder_entries(out)) {
        EXPECT_EQ(read_or_fail(out + "/" + name), read_or_fail(folder.file("whole/" + name)));
      }
    }
  }
}

TEST(GgufParts, RefusesPartsThatAreMissingOrContradictEachOther) {
  const auto with = [](const std::function<void(std::vector<GgufBuilder>&)>& change) {
    const ScratchFolder folder;
    std::vector<GgufBuilder> parts = small_gguf_llama().parts(3);
    change(parts);
    parts.resize(3);
    write_parts(folder, parts);
    return GgufFile::open(part_path(folder, 2, 3));
  };
  using Parts = std::vector<GgufBuilder>;
  EXPECT_TRUE(with([](Parts&) {}));
  EXPECT_FAILS_WITH(with([](Parts& p) { p[2].number("split.no", 1); }), Code::kCorrupt,
                    "small-00003-of-00003.gguf: keys \"split.no\" and \"split.count\" are 1 and 3");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[2].number("split.count", 4); }), Code::kCorrupt,
                    "are 2 and 4");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[1].number("split.count", 4); }), Code::kInvalidArgument,
                    "name them NAME-00001-of-00004.gguf");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[1].number("split.count", 4097); }), Code::kCorrupt,
                    "at most 4096 parts");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[0].remove("split.no"); }), Code::kCorrupt,
                    "00001-of-00003.gguf: key \"split.no\" is missing");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[0].number("split.tensors.count", 12); }), Code::kCorrupt,
                    "\"split.tensors.count\" is 12, but the 3 parts have 11");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[2].tensor("token_embd.weight", {1}, kGgufF32, "1234"); }),
                    Code::kCorrupt, "00003-of-00003.gguf: tensor \"token_embd.weight\" is in ");
  EXPECT_FAILS_WITH(with([](Parts& p) { p[2].version = 1; }), Code::kUnsupported,
                    "00003-of-00003.gguf: is a GGUF file of version 1");

  const ScratchFolder folder;
  write_parts(folder, small_gguf_llama().parts(3));
  std::filesystem::remove(part_path(folder, 3, 3));
  EXPECT_FAILS_WITH(GgufFile::open(part_path(folder, 1, 3)), Code::kNotFound,
                    "small-00003-of-00003.gguf: is missing");
  for (const char* name :
       {"other.gguf", "a-0001-of-00003.gguf", "a-00004-of-00003.gguf", "a-00001-of-00003",
        "00001-of-00003.gguf", "a-00001-of-99999999999999999999.gguf", "a-00000-of-00003.gguf"}) {
    std::filesystem::copy_file(part_path(folder, 1, 3), folder.file(name));
    EXPECT_FAILS_WITH(GgufFile::open(folder.file(name)), Code::kInvalidArgument, "by their names");
  }
}

}  // namespace
}  // namespace jige::formats
