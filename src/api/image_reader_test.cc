// Files that take long to decode, whose clients go or whose server stops.
#include "api/image_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/image_test_support.h"
#include "api/test_client.h"

namespace jige::api {
namespace {

using testing::png_file;
using testing::soon;

// A black PNG of a few kilobytes that takes a tenth of a second or more.
std::string make_slow_file() {
  constexpr uint32_t kSide = 5000;
  const std::string rows(size_t{kSide} * (kSide + 1), 0);
  uLongf size = compressBound(rows.size());
  std::string packed(size, 0);
  EXPECT_EQ(compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                      reinterpret_cast<const Bytef*>(rows.data()), rows.size(), 1),
            Z_OK);
  const std::string head =
      images::four_bytes(kSide) + images::four_bytes(kSide) + std::string("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + images::png_chunk("IHDR", head) +
         images::png_chunk("IDAT", packed.substr(0, size)) + images::png_chunk("IEND", "");
}

const std::string& slow_file() {
  static const std::string made = make_slow_file();
  return made;
}

ImageFile file_of(std::string bytes) {
  const auto size = images::image_size(std::as_bytes(std::span(bytes)), "photo");
  EXPECT_TRUE(size);
  return {.bytes = std::move(bytes), .where = "photo", .size = size.value_or(images::ImageSize())};
}

// Ends a job while the second of its files is decoded, and returns the status that it is done with.
int status_when_ended(const std::function<void(ImageReader&, std::atomic<bool>&)>& end) {
  ImageReader reader(testing::pixel_translator());
  std::atomic<int> status{0};
  ImageReader::Job job{.prompt = {testing::kPlaceholder, testing::kPlaceholder},
                       .cancelled = std::make_shared<std::atomic<bool>>(false),
                       .done = [&](const ApiResult<serve::ImagePrompt>& prompt) {
                         status = prompt ? 200 : prompt.error().status;
                       }};
  job.files.push_back(file_of(png_file(1, 1)));
  job.files.push_back(file_of(slow_file()));
  const auto cancelled = job.cancelled;
  EXPECT_FALSE(reader.read(std::move(job)));
  EXPECT_TRUE(soon([&] { return reader.counts().decode_seconds.count == 1; }));
  end(reader, *cancelled);
  EXPECT_TRUE(soon([&] { return status != 0; }));
  EXPECT_EQ(reader.counts().decode_seconds.count, 1u) << "the second one has not been decoded";
  EXPECT_EQ(reader.counts().cancelled, 1);
  return status;
}

TEST(ImageReader, EndsDecodingWhenNobodyWaitsForIt) {
  status_when_ended([](ImageReader&, std::atomic<bool>& cancelled) { cancelled = true; });
}

TEST(ImageReader, EndsDecodingWhenItStops) {
  EXPECT_EQ(status_when_ended([](ImageReader& reader, std::atomic<bool>&) { reader.stop(); }), 503);
}

// A large image asks whether to go on until a small one was read meanwhile, and then for a while.
TEST(ImageReader, ReadsInBetweenWhatIsSmallEnoughAlone) {
  std::mutex mutex;
  std::vector<int32_t> order;  // widths, as they were read
  std::atomic<bool> begun{false};
  ImageTranslator translator = testing::pixel_translator();
  translator.token_count = [](images::ImageSize size) { return int64_t{size.width}; };
  translator.aside_tokens_max = 2;
  translator.read = [&](std::span<const int32_t>, std::span<const images::Image> images,
                        const GoOn& go_on) -> Result<serve::ImagePrompt> {
    const int32_t width = images[0].width;
    const auto small_is_read = [&] {
      const std::lock_guard lock(mutex);
      return !order.empty();
    };
    begun = true;
    for (int more = width == 9 ? 50 : 0; more > 0; more -= small_is_read() ? 1 : 0) {
      JIGE_DO(go_on());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::lock_guard lock(mutex);
    order.push_back(width);
    return serve::ImagePrompt{};
  };
  ImageReader reader(std::move(translator));
  std::atomic<int> done{0};
  const auto read = [&](int32_t width) {
    ImageReader::Job job{.prompt = {testing::kPlaceholder},
                         .cancelled = std::make_shared<std::atomic<bool>>(false),
                         .done = [&](const ApiResult<serve::ImagePrompt>&) { ++done; }};
    job.files.push_back(file_of(png_file(width, 1)));
    EXPECT_FALSE(reader.read(std::move(job)));
  };
  read(9);
  EXPECT_TRUE(soon([&] { return begun.load(); }));
  read(3);
  read(2);
  EXPECT_TRUE(soon([&] { return done == 3; }));
  EXPECT_EQ(order, (std::vector<int32_t>{2, 9, 3}));
}

}  // namespace
}  // namespace jige::api
