#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// A file of a header and data, with an honest length.
std::string container(std::string header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data);
}

Result<TensorTable> parse_file(std::string_view file) {
  return parse_safetensors_header(bytes_of(file), "file");
}

TEST(Safetensors, ReadsEveryTypeThatTheLibraryWrote) {
  const auto file = open_safetensors(fixture("weights/all_types.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 14u);
  EXPECT_EQ(file->metadata(), (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));

  const auto f32 = file->view("f32");
  ASSERT_TRUE(f32) << f32.error().message;
  EXPECT_EQ(f32->shape, (Shape{2, 3}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(f32->as<float>()[i], static_cast<float>(i) + 0.5f);
  const auto bf16 = file->view("bf16");
  ASSERT_TRUE(bf16);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(to_float(bf16->as<BFloat16>()[i]), i - 2);
  const auto f16 = file->view("f16");
  ASSERT_TRUE(f16);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(to_float(f16->as<Float16>()[i]), static_cast<float>(i) / 4);
  }
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(file->view("i8")->as<int8_t>()[i], i - 3);
    EXPECT_EQ(file->view("i32")->as<int32_t>()[i], i * 1000);
    EXPECT_EQ(file->view("i64")->as<int64_t>()[i], i * 10'000'000'000);
    EXPECT_EQ(file->view("u8")->as<uint8_t>()[i], 250 + i);
  }
  EXPECT_EQ(file->view("scalar")->shape.rank(), 0);
  EXPECT_EQ(*file->view("scalar")->as<float>(), 7.0f);
  EXPECT_EQ(file->view("none")->shape, (Shape{0, 4}));
  EXPECT_EQ(*file->view("quote\" and é")->as<float>(), 1.0f);
}

TEST(Safetensors, ListsOtherTypesAndRanksAndRefusesThemOnlyWhenAsked) {
  const auto file = open_safetensors(fixture("weights/all_types.safetensors"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->find("f64")->dtype_name, "F64");
  EXPECT_EQ(file->find("f64")->bytes, 48u);
  EXPECT_FAILS_WITH(file->view("f64"), Code::kUnsupported, "type F64");
  EXPECT_FAILS_WITH(file->view("bool"), Code::kUnsupported, "type BOOL");
  EXPECT_FAILS_WITH(file->view("f8"), Code::kUnsupported, "type F8_E4M3");
  EXPECT_FAILS_WITH(file->view("rank6"), Code::kUnsupported, "6 dimensions");
  EXPECT_FAILS_WITH(file->view("absent"), Code::kNotFound, "\"absent\"");
  EXPECT_EQ(file->find("absent"), nullptr);
}

TEST(Safetensors, RefusesEveryRecordedLieByItsName) {
  const auto expected = load_json_object(fixture("lies/expected.json"));
  ASSERT_TRUE(expected) << expected.error().message;
  ASSERT_GT(expected->size(), 50u);
  for (const auto& [name, words] : expected->items()) {
    const std::string path = fixture("lies/" + name + ".safetensors");
    ASSERT_TRUE(std::filesystem::exists(path)) << path;
    const auto file = open_safetensors(path);
    ASSERT_FALSE(file) << name << " was accepted";
    EXPECT_EQ(file.error().code, Code::kCorrupt) << file.error().message;
    EXPECT_NE(file.error().message.find(words.get<std::string>()), std::string::npos)
        << name << ": " << file.error().message;
    EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
  }
}

TEST(Safetensors, RefusesEveryTruncationOfAGoodFile) {
  const std::string whole = read_or_fail(fixture("weights/readable.safetensors"));
  ASSERT_TRUE(parse_file(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(parse_file(std::string_view(whole).substr(0, size))) << size << " bytes";
  }
}

TEST(Safetensors, PassesOverFieldsOfTheFuture) {
  const auto header =
      parse_file(container(R"({"a":{"dtype":"U8","note":{"x":[1,-2,0.5,null,true,"s"]},)"
                           R"("shape":[2],"data_offsets":[0,2]}})",
                           "hi"));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].bytes, 2u);
}

TEST(Safetensors, ListsTypesItHasNeverHeardOf) {
  const auto header =
      parse_file(container(R"({"a":{"dtype":"Q3_K","shape":[5],"data_offsets":[0,2]}})", "hi"));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_FALSE(header->tensors[0].dtype);
}

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  const auto header = parse_file(container("{}", ""));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_TRUE(header->tensors.empty());
}

// Writers before 0.3 did not pad the header; the popular GPT-2 folder is such a file.
TEST(Safetensors, GivesAlignedViewsOfUnalignedFiles) {
  const ScratchFolder scratch;
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 4 != 1) header += ' ';
  const float values[2] = {1.25f, -3.0f};
  std::string data(sizeof values, '\0');
  std::memcpy(data.data(), values, sizeof values);
  write_or_fail(scratch.file("a.safetensors"), container(header, data));

  auto file = open_safetensors(scratch.file("a.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_NE(file->find("a")->offset % 4, 0u);
  const auto view = file->view("a");
  ASSERT_TRUE(view);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % 4, 0u);
  EXPECT_EQ(view->as<float>()[1], -3.0f);
  EXPECT_EQ(file->view("a")->data, view->data);  // one copy serves all
  const TensorFile moved = std::move(*file);
  EXPECT_EQ(moved.view("a")->data, view->data);
}

TEST(Safetensors, ReadsAHeaderOfManyTensorsInLinearTime) {
  constexpr int kCount = 50'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    header += fmt::format(
        "{}\"layer.{}.weight\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
        i ? "," : "", i, i, i + 1);
  }
  const auto parsed = parse_file(container(header + "}", std::string(kCount, 'x')));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->index.at("layer.48765.weight"), 48765u);
}

TEST(Safetensors, NamesAFileThatIsNotThere) {
  EXPECT_FAILS_WITH(open_safetensors("/nowhere/a.safetensors"), Code::kNotFound,
                    "/nowhere/a.safetensors");
}

}  // namespace
}  // namespace jige::formats
