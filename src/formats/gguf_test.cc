// The reader of GGUF files and the values of their types.
#include "formats/gguf.h"

#include "formats/gguf_test_support.h"
#include "formats/safetensors.h"

namespace jige::formats {
namespace {

Result<GgufHeader> parse(const std::string& file) { return parse_gguf(bytes_of(file), "a.gguf"); }

TEST(Gguf, ReadsKeysOfEveryTypeAndTensorsOfAWriterOfItsOwn) {
  GgufBuilder builder;
  builder.version = 2;
  builder.alignment = 64;
  const std::string file = builder.number("general.alignment", 64)
                               .real("eps", 1e-5f)
                               .flag("flag", true)
                               .text("text", "two words")
                               .texts("texts", {"a", "", "ccc"})
                               .ints("ints", {3, -4})
                               .ints("same", {7, 7})
                               .reals("reals", {0.5f, -1.0f})
                               .raw_value("byte", 0, "\xff")
                               .raw_value("negative", 1, "\xff")
                               .tensor("m", {2, 3}, kGgufF32, std::string(24, 'x'))
                               .tensor("v", {5}, kGgufF16, std::string(10, 'y'))
                               .bytes();
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  const GgufMetadata& keys = header->metadata;
  EXPECT_EQ(keys.get_int("general.alignment").value(), 64);
  EXPECT_EQ(keys.find_number("eps").value(), 1e-5);
  EXPECT_EQ(keys.find_bool("flag").value(), true);
  EXPECT_EQ(keys.get_text("text").value(), "two words");
  EXPECT_EQ(keys.find_texts("texts").value()->at(2), "ccc");
  EXPECT_EQ(keys.find_ints("ints").value().value(), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(keys.get_same_int("same").value(), 7);
  EXPECT_EQ(keys.find_floats("reals").value().value(), (std::vector<float>{0.5f, -1.0f}));
  EXPECT_EQ(keys.get_int("byte").value(), 255);
  EXPECT_EQ(keys.get_int("negative").value(), -1);
  EXPECT_EQ(keys.find_int("nothing").value(), std::nullopt);
  EXPECT_EQ(header->find("m")->dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.substr(header->find("m")->offset, 24), std::string(24, 'x'));
  EXPECT_EQ(file.substr(header->find("v")->offset, 10), std::string(10, 'y'));
  EXPECT_EQ(header->find("v")->offset % 64, 0u);

  EXPECT_FAILS_WITH(keys.get_int("text"), Code::kCorrupt, "key \"text\" is a text");
  EXPECT_FAILS_WITH(keys.get_text("gone"), Code::kCorrupt, "key \"gone\" is missing");
  EXPECT_FAILS_WITH(keys.get_same_int("ints"), Code::kUnsupported, "3 for one layer and -4");
  EXPECT_FAILS_WITH(keys.find_ints("reals"), Code::kCorrupt, "key \"reals\"");
  EXPECT_FAILS_WITH(keys.find_floats("ints"), Code::kCorrupt, "key \"ints\"");
}

TEST(Gguf, ReadsFilesOfThePackageAndDecodesEveryTypeToTheBit) {
  const auto file = GgufFile::open(gguf_fixture("types.gguf"));
  const auto expected = open_safetensors(gguf_fixture("types.safetensors"));
  ASSERT_TRUE(file && expected);
  EXPECT_EQ(file->header().tensors.size(), 16u);
  for (const GgufTensor& tensor : file->header().tensors) {
    SCOPED_TRACE(std::string(tensor.name));
    ASSERT_NE(tensor.type->decode, nullptr);
    const auto values = expected->view(tensor.name);
    ASSERT_TRUE(values);
    std::vector<float> decoded(static_cast<size_t>(values->count()));
    tensor.type->decode(file->data(tensor), values->count() / tensor.type->block_elements,
                        decoded.data());
    EXPECT_EQ(std::memcmp(decoded.data(), values->data, decoded.size() * sizeof(float)), 0);
  }
}

TEST(Gguf, RefusesOtherVersionsAndByteOrdersByName) {
  GgufBuilder builder;
  EXPECT_FAILS_WITH(parse("GGML and more"), Code::kCorrupt, "does not begin with \"GGUF\"");
  EXPECT_FAILS_WITH(parse(""), Code::kCorrupt, "no GGUF file");
  builder.version = 1;
  EXPECT_FAILS_WITH(parse(builder.bytes()), Code::kUnsupported, "version 1");
  builder.version = 4;
  EXPECT_FAILS_WITH(parse(builder.bytes()), Code::kUnsupported, "reads versions 2 and 3");
  builder.version = 0x03000000;
  EXPECT_FAILS_WITH(parse(builder.bytes()), Code::kUnsupported, "big-endian");
}

TEST(Gguf, RefusesWhatDoesNotFitTheFile) {
  const std::string whole = small_gguf_llama().bytes();
  ASSERT_TRUE(parse(whole));
  for (size_t size = 0; size < whole.size(); size += size < 3000 ? 7 : 501) {
    const auto cut = parse(whole.substr(0, size));
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code, Code::kCorrupt) << cut.error().message;
  }
  std::string counts = "GGUF";
  append_raw<uint32_t>(counts, 3);
  append_raw<uint64_t>(counts, UINT64_MAX);
  append_raw<uint64_t>(counts, 1);
  EXPECT_FAILS_WITH(parse(counts), Code::kCorrupt, "at most");

  std::string endless;  // an array that claims more than there is
  append_raw<uint32_t>(endless, 10);
  append_raw<uint64_t>(endless, UINT64_MAX / 4);
  EXPECT_FAILS_WITH(parse(GgufBuilder().raw_value("list", 9, endless).bytes()), Code::kCorrupt,
                    "key \"list\" has 4611686018427387903 elements");
  std::string nested;
  append_raw<uint32_t>(nested, 9);
  append_raw<uint64_t>(nested, 1);
  EXPECT_FAILS_WITH(parse(GgufBuilder().raw_value("list", 9, nested).bytes()), Code::kUnsupported,
                    "array of arrays");
  EXPECT_FAILS_WITH(parse(GgufBuilder().raw_value("odd", 13, "").bytes()), Code::kCorrupt,
                    "type number 13");
  EXPECT_FAILS_WITH(parse(GgufBuilder().raw_value("odd", 7, "\2").bytes()), Code::kCorrupt,
                    "truth value");
  EXPECT_FAILS_WITH(parse(GgufBuilder().number("general.alignment", 24).bytes()), Code::kCorrupt,
                    "power of two");
}

TEST(Gguf, RefusesTensorsThatContradictThemselves) {
  const auto with = [](std::vector<int64_t> dims, uint32_t type) {
    return GgufBuilder().tensor("w", std::move(dims), type, std::string(64, '\0')).bytes();
  };
  EXPECT_FAILS_WITH(parse(with({}, 0)), Code::kCorrupt, "0 dimensions");
  EXPECT_FAILS_WITH(parse(with({1, 1, 1, 1, 1}, 0)), Code::kCorrupt, "5 dimensions");
  EXPECT_FAILS_WITH(parse(with({4, 0}, 0)), Code::kCorrupt, "is 0");
  EXPECT_FAILS_WITH(parse(with({int64_t{1} << 40, int64_t{1} << 40}, 0)), Code::kCorrupt,
                    "dimension 1");
  EXPECT_FAILS_WITH(parse(with({2, 33}, 8)), Code::kCorrupt, "no multiple of 32");
  EXPECT_FAILS_WITH(parse(with({2, 2}, 77)), Code::kUnsupported, "type number 77");
  EXPECT_FAILS_WITH(parse(with({64, 64}, 0)), Code::kCorrupt, "cut short");

  std::string file = GgufBuilder()
                         .tensor("a", {8}, 0, std::string(32, '\0'))
                         .tensor("b", {8}, 0, std::string(32, '\0'))
                         .bytes();
  const size_t place = file.find("b", 30) + 1 + 4 + 8 + 4;  // the offset of b
  for (const auto& [offset, words] :
       {std::pair{uint64_t{0}, "\"a\" and \"b\" overlap"},
        std::pair{uint64_t{16}, "multiples of 32"}, std::pair{UINT64_MAX - 31, "cut short"}}) {
    std::memcpy(file.data() + place, &offset, sizeof offset);
    EXPECT_FAILS_WITH(parse(file), Code::kCorrupt, words);
  }
}

TEST(Gguf, RefusesNamesGivenTwice) {
  GgufBuilder builder;
  builder.number("aa", 1).number("ab", 2);
  std::string file = builder.bytes();
  file[file.find("ab") + 1] = 'a';
  EXPECT_FAILS_WITH(parse(file), Code::kCorrupt, "key \"aa\" appears twice");
  file = GgufBuilder().tensor("ta", {1}, 0, "1234").tensor("tb", {1}, 0, "1234").bytes();
  file[file.find("tb") + 1] = 'a';
  EXPECT_FAILS_WITH(parse(file), Code::kCorrupt, "listed twice");
}

}  // namespace
}  // namespace jige::formats
