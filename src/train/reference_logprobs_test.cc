#include "train/reference_logprobs.h"

#include <gtest/gtest.h>

#include "train/test_support.h"

namespace jige::train {
namespace {

const ReferenceLogProbs kSome{.training = {{0, {-1.5, -2.25}}, {40, {-3, -0.1}}},
                              .held_out = {{7, {-9, -8}}}};

TEST(ReferenceLogProbs, ComeBackFromTheirFileAsTheyWere) {
  const TestFolder folder;
  const std::string path = reference_path(folder.path(), 77);
  EXPECT_EQ(read_reference(path, 77).error().code, Code::kNotFound);
  ASSERT_TRUE(write_reference(path, 77, kSome));
  const auto read = read_reference(path, 77);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(*read == kSome);
  EXPECT_EQ(find_reference(read->training, 40), (PairLogProbs{-3, -0.1}));
  ASSERT_TRUE(write_reference(path, 77, {.training = kSome.training}));
  EXPECT_TRUE(read_reference(path, 77)->held_out.empty());
}

TEST(ReferenceLogProbs, AreRefusedUnderAnotherKeyAndWhereAByteIsAnother) {
  const TestFolder folder;
  const std::string path = folder.file("reference.bin");
  ASSERT_TRUE(write_reference(path, 77, kSome));
  EXPECT_EQ(read_reference(path, 78).error().code, Code::kCorrupt);
  const std::string whole = *read_file(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    folder.write("reference.bin", damaged);
    EXPECT_EQ(read_reference(path, 77).error().code, Code::kCorrupt) << "byte " << at;
    folder.write("reference.bin", whole.substr(0, at));
    EXPECT_EQ(read_reference(path, 77).error().code, Code::kCorrupt) << at << " bytes";
  }
}

}  // namespace
}  // namespace jige::train
