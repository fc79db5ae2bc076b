#include "formats/zip_directory.h"

#include <algorithm>
#include <optional>

#include "formats/byte_reader.h"

namespace jige::formats {
namespace {

constexpr uint32_t kLocalMark = 0x04034b50;
constexpr uint32_t kEntryMark = 0x02014b50;
constexpr uint32_t kEndMark = 0x06054b50;
constexpr uint32_t kWideEndMark = 0x06064b50;
constexpr uint32_t kLocatorMark = 0x07064b50;
constexpr size_t kEndBytes = 22;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCommentBytesMax = 65'535;
constexpr uint16_t kWideField = 1;
constexpr uint16_t kEncryptedFlag = 1;
constexpr uint32_t kInWideField = 0xffffffff;
constexpr uint16_t kInWideEnd = 0xffff;

// What is common to all entries.
struct ZipEnd {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> file, std::string_view where) : file_(file), where_(where) {}

  Result<std::vector<ZipEntry>> run() {
    JIGE_TRY(const ZipEnd end, read_end());
    if (end.entries > kZipEntriesMax) {
      return fail(Code::kCorrupt, "{}: names {} entries; at most {} are read", where_, end.entries,
                  kZipEntriesMax);
    }
    if (end.offset > file_.size() || end.bytes > file_.size() - end.offset) {
      return fail(Code::kCorrupt,
                  "{}: says that its directory has {} bytes from byte {} on; the file has {}",
                  where_, end.bytes, end.offset, file_.size());
    }
    ByteReader directory(file_.first(end.offset + end.bytes), where_, end.offset);
    std::vector<ZipEntry> entries;
    for (uint64_t i = 0; i < end.entries; ++i) {
      JIGE_TRY(ZipEntry entry, read_entry(directory));
      entries.push_back(entry);
    }
    return entries;
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(Code::kCorrupt, "{}: {}; the file is truncated or damaged, fetch it again", where_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  // The last end record whose comment reaches to the end of the file.
  std::optional<size_t> find_end() const {
    if (file_.size() < kEndBytes) return std::nullopt;
    const size_t last = file_.size() - kEndBytes;
    const size_t first = last - std::min(last, kCommentBytesMax);
    for (size_t at = last + 1; at-- > first;) {
      if (number_at<uint32_t>(file_.data() + at) != kEndMark) continue;
      if (number_at<uint16_t>(file_.data() + at + 20) == last - at) return at;
    }
    return std::nullopt;
  }

  Result<ZipEnd> read_end() {
    const std::optional<size_t> at = find_end();
    if (!at) return corrupt("is a zip archive without an end record");
    const std::byte* record = file_.data() + *at;
    const ZipEnd end{.entries = number_at<uint16_t>(record + 10),
                     .bytes = number_at<uint32_t>(record + 12),
                     .offset = number_at<uint32_t>(record + 16)};
    const auto disk = number_at<uint16_t>(record + 4);
    if (disk != 0 && disk != kInWideEnd) {
      return fail(Code::kUnsupported, "{}: is the last of several files of one archive", where_);
    }
    const bool wide = *at >= kLocatorBytes &&
                      number_at<uint32_t>(file_.data() + *at - kLocatorBytes) == kLocatorMark;
    if (wide) return read_wide_end(number_at<uint64_t>(file_.data() + *at - kLocatorBytes + 8));
    return end;
  }

  Result<ZipEnd> read_wide_end(uint64_t at) {
    ByteReader reader(file_, where_, at);
    JIGE_TRY(const std::string_view record, reader.take(56, "the end record of 64 bits"));
    if (number_at<uint32_t>(record.data()) != kWideEndMark) {
      return corrupt("has no end record at byte {}, where its locator leads", at);
    }
    return ZipEnd{.entries = number_at<uint64_t>(record.data() + 32),
                  .bytes = number_at<uint64_t>(record.data() + 40),
                  .offset = number_at<uint64_t>(record.data() + 48)};
  }

  Result<ZipEntry> read_entry(ByteReader& directory) {
    JIGE_TRY(const std::string_view record, directory.take(46, "an entry of the directory"));
    if (number_at<uint32_t>(record.data()) != kEntryMark) {
      return corrupt("its directory has no entry at byte {}", directory.at() - record.size());
    }
    ZipEntry entry;
    JIGE_TRY(entry.name,
             directory.take(number_at<uint16_t>(record.data() + 28), "the name of an entry"));
    JIGE_TRY(const std::string_view extra, directory.take(number_at<uint16_t>(record.data() + 30),
                                                          "the extra fields of an entry"));
    JIGE_DO(directory.take(number_at<uint16_t>(record.data() + 32), "the comment of an entry"));
    const auto flags = number_at<uint16_t>(record.data() + 8);
    entry.stored = number_at<uint16_t>(record.data() + 10) == 0 && (flags & kEncryptedFlag) == 0;
    // In this order, those that do not fit stand in the extra field.
    uint64_t numbers[] = {number_at<uint32_t>(record.data() + 24),
                          number_at<uint32_t>(record.data() + 20),
                          number_at<uint32_t>(record.data() + 42)};
    JIGE_DO(read_wide_numbers(extra, entry, numbers));
    const auto [unpacked, packed, local] = numbers;
    if (entry.stored && unpacked != packed) {
      return corrupt("entry \"{}\" is stored as {} bytes and has {}", shown(entry), packed,
                     unpacked);
    }
    entry.bytes = packed;
    JIGE_DO(place(entry, local));
    return entry;
  }

  Status read_wide_numbers(std::string_view extra, const ZipEntry& entry,
                           std::span<uint64_t, 3> numbers) const {
    const auto missing = [](uint64_t number) { return number == kInWideField; };
    while (extra.size() >= 4 && std::any_of(numbers.begin(), numbers.end(), missing)) {
      const auto field = number_at<uint16_t>(extra.data());
      const auto size = number_at<uint16_t>(extra.data() + 2);
      extra.remove_prefix(4);
      if (size > extra.size()) break;
      if (field == kWideField) {
        std::string_view content = extra.substr(0, size);
        for (uint64_t& number : numbers) {
          if (!missing(number)) continue;
          if (content.size() < sizeof number) return lacks_numbers(entry);
          number = number_at<uint64_t>(content.data());
          content.remove_prefix(sizeof number);
        }
        return {};
      }
      extra.remove_prefix(size);
    }
    if (std::none_of(numbers.begin(), numbers.end(), missing)) return {};
    return lacks_numbers(entry);
  }

  tl::unexpected<Error> lacks_numbers(const ZipEntry& entry) const {
    return corrupt("entry \"{}\" lacks its numbers of 64 bits", shown(entry));
  }

  // Where the data of an entry is: behind its local header.
  Status place(ZipEntry& entry, uint64_t local) const {
    if (local > file_.size() || file_.size() - local < kLocalBytes ||
        number_at<uint32_t>(file_.data() + local) != kLocalMark) {
      return corrupt("entry \"{}\" is said to be at byte {}, where there is none", shown(entry),
                     local);
    }
    entry.offset = local + kLocalBytes + number_at<uint16_t>(file_.data() + local + 26) +
                   number_at<uint16_t>(file_.data() + local + 28);
    if (entry.offset <= file_.size() && entry.bytes <= file_.size() - entry.offset) return {};
    return corrupt("entry \"{}\" has {} bytes from byte {} on, but the file has {}", shown(entry),
                   entry.bytes, entry.offset, file_.size());
  }

  static std::string_view shown(const ZipEntry& entry) { return entry.name.substr(0, 200); }

  std::span<const std::byte> file_;
  std::string_view where_;
};

}  // namespace

bool is_zip(std::span<const std::byte> file) {
  if (file.size() < sizeof kLocalMark) return false;
  return number_at<uint32_t>(file.data()) == kLocalMark;
}

Result<std::vector<ZipEntry>> read_zip_directory(std::span<const std::byte> file,
                                                 std::string_view where) {
  return ZipReader(file, where).run();
}

}  // namespace jige::formats
