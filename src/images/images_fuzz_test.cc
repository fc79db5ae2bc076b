// Seeded mutation of every kind of file. A file may be refused or read, but what is read must hold
// its promises; crashes and reports of sanitizers are failures too. Replay one case by its seed:
// each failure prints it. JIGE_FUZZ_ROUNDS multiplies the number of cases.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "images/decode.h"
#include "images/test_files.h"

namespace jige::images {
namespace {

// Large enough for the files, so small that damaged sizes cost little time.
constexpr DecodeLimits kLimits{.file_bytes_max = 1 << 20, .pixels_max = 1 << 16, .side_max = 4096};

TEST(ImagesFuzz, FilesThatAreDamaged) {
  const auto files = image_files();
  std::map<std::string, int> accepted;
  for (uint64_t seed = 0; seed < fuzz_rounds(15'000); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto& [name, good] = files[seed % files.size()];
    std::string file = Mutator(seed).mutate(good);
    if (name.ends_with(".png") && seed / files.size() % 4 != 0) file = with_png_checksums(file);
    const Result<Image> image = decode_image(bytes_of(file), "photo", kLimits);
    if (!image) {
      const std::string& message = image.error().message;
      ASSERT_TRUE(message.starts_with("photo: ")) << message;
      ASSERT_LT(message.size(), 500u);
      continue;
    }
    ++accepted[name.substr(name.find('.'))];
    ASSERT_GE(image->width, 1);
    ASSERT_GE(image->height, 1);
    ASSERT_LE(image->width, kLimits.side_max);
    ASSERT_LE(image->height, kLimits.side_max);
    ASSERT_LE(int64_t{image->width} * image->height, kLimits.pixels_max);
    ASSERT_EQ(image->rgb.size(), image->row_bytes() * static_cast<size_t>(image->height));
  }
  EXPECT_EQ(accepted.size(), 4u);
  for (const auto& [kind, count] : accepted) EXPECT_GT(count, 50) << kind;
}

}  // namespace
}  // namespace jige::images
