#include "base/bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace jige {
namespace {

TEST(FormatBytes, ShowsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(10 * 1024), "10.0 KiB");
  EXPECT_EQ(format_bytes(10234), "9.99 KiB");
  EXPECT_EQ(format_bytes(10236), "10.0 KiB");    // 9.996: not 10.00
  EXPECT_EQ(format_bytes(102380), "100 KiB");    // 99.98: not 100.0
  EXPECT_EQ(format_bytes(1023900), "0.98 MiB");  // 999.9: not 1000 KiB
  EXPECT_EQ(format_bytes(int64_t{23} << 30), "23.0 GiB");
  EXPECT_EQ(format_bytes(INT64_MAX), "8.00 EiB");
}

TEST(ParseBytes, ReadsEveryForm) {
  const auto bytes = [](const char* text) { return parse_bytes(text).value_or(UINT64_MAX); };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("4096"), 4096u);
  EXPECT_EQ(bytes("4096B"), 4096u);
  EXPECT_EQ(bytes("64K"), 65536u);
  EXPECT_EQ(bytes("64KiB"), 65536u);
  EXPECT_EQ(bytes("64kb"), 64000u);
  EXPECT_EQ(bytes("1.5 GiB"), 1610612736u);
  EXPECT_EQ(bytes("2GB"), 2000000000u);
  EXPECT_EQ(bytes("3t"), uint64_t{3} << 40);
  EXPECT_EQ(bytes("2PiB"), uint64_t{2} << 50);
  EXPECT_EQ(bytes("0.5M"), 524288u);
  EXPECT_EQ(bytes("1e3"), 1000u);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "GiB", "12Q", "-1", "-0.5G", "1.5.5G", "0x10", "nan", "inf",
                           "1e30", "10000000T", "12KiBB", "12 34", "K12", "1,5G", "+5"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find(text), std::string::npos);
  }
  EXPECT_FALSE(parse_bytes(std::string_view("12\0K", 4)).has_value());
}

TEST(FormatBytesUp, ShowsThreeDigitsThatAreEnough) {
  EXPECT_EQ(format_bytes_up(1023), "1023 B");
  EXPECT_EQ(format_bytes_up(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes_up(1025), "1.01 KiB");
  EXPECT_EQ(format_bytes_up(500331648), "478 MiB");        // 477.15
  EXPECT_EQ(format_bytes_up(999 * 1024 + 1), "0.98 MiB");  // not 1000 KiB
  Rng rng(5);
  for (int i = 0; i < 20000; ++i) {
    const auto bytes = static_cast<int64_t>(rng.next_u64() >> (14 + rng.below(49)));
    const std::string shown = format_bytes_up(bytes);
    const auto read = parse_bytes(shown);
    ASSERT_TRUE(read) << shown;
    EXPECT_GE(*read, static_cast<uint64_t>(bytes)) << shown;
    EXPECT_LE(static_cast<double>(*read), 1.0111 * static_cast<double>(bytes)) << shown;
  }
}

TEST(FormatCount, ShowsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 k");
  EXPECT_EQ(format_count(12.34), "12.3");
  EXPECT_EQ(format_count(1234567), "1.23 M");
  EXPECT_EQ(format_count(999900), "1.00 M");
  EXPECT_EQ(format_count(-5200), "-5.20 k");
  EXPECT_EQ(format_count(7.24e9), "7.24 G");
}

TEST(FormatDuration, ShowsHoursMinutesAndSeconds) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(65), "1:05");
  EXPECT_EQ(format_duration(3725), "1:02:05");
  EXPECT_EQ(format_duration(360000), "100:00:00");
  EXPECT_EQ(format_duration(-3), "0:00");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "unknown");
  EXPECT_EQ(format_duration(std::nan("")), "unknown");
}

}  // namespace
}  // namespace jige
