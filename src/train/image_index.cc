#include "train/image_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "formats/xxhash64.h"
#include "images/data_url.h"
#include "images/decode.h"
#include "train/line_reader.h"

namespace jige::train {
namespace {

constexpr size_t kIndexLineBytesMax = size_t{1} << 16;
constexpr int64_t kNanoseconds = 1'000'000'000;

uint64_t digest_of(std::string_view bytes) {
  formats::XxHash64 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.digest();
}

// Of a file that is there; false where the system says nothing.
bool stamp(const std::string& path, int64_t& byte_count, int64_t& changed_ns) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  byte_count = info.st_size;
  changed_ns = info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec;
  return true;
}

size_t file_bytes_max() { return static_cast<size_t>(images::DecodeLimits().file_bytes_max); }

// A pipe would be waited for, and has its bytes once.
Result<std::string> read_image_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_other(status)) {
    return fail(Code::kInvalidArgument,
                "{}: is a pipe or a device; name a file, which is read whenever it is learned from",
                path);
  }
  return read_file(path, file_bytes_max());
}

Result<std::string> read_picture(const std::string& path, int64_t at, int64_t byte_count) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path, "open", errno);
  std::string bytes(static_cast<size_t>(byte_count), '\0');
  size_t done = 0;
  ssize_t got = 1;
  while (done < bytes.size() && got > 0) {
    got = ::pread(fd, bytes.data() + done, bytes.size() - done, at + static_cast<int64_t>(done));
    if (got > 0) done += static_cast<size_t>(got);
  }
  const int reason = errno;
  ::close(fd);
  if (got < 0) return file_error(path, "read", reason);
  bytes.resize(done);
  return bytes;
}

Result<CorpusImage> read_line(std::string_view line, const std::string& where) {
  JIGE_TRY(const Json json, parse_json(line, where));
  CorpusImage image;
  JIGE_TRY(image.token, get_int(json, "token", where));
  JIGE_TRY(const int64_t count, get_int(json, "count", where));
  JIGE_TRY(const int64_t width, get_int(json, "width", where));
  JIGE_TRY(const int64_t height, get_int(json, "height", where));
  JIGE_TRY(const std::string digest, get_string(json, "digest", where));
  JIGE_TRY(image.source.file, get_string_or(json, "file", "", where));
  JIGE_TRY(image.source.at, get_int_or(json, "at", 0, where));
  JIGE_TRY(image.source.byte_count, get_int(json, "bytes", where));
  JIGE_TRY(image.source.changed_ns, get_int_or(json, "changed_ns", 0, where));
  const auto side = [](int64_t pixels) {
    return pixels > 0 && pixels <= images::DecodeLimits().side_max;
  };
  const bool possible = side(width) && side(height) && count > 0 && count <= INT32_MAX &&
                        image.source.at >= 0 && image.source.byte_count >= 0 &&
                        std::cmp_less_equal(image.source.byte_count, file_bytes_max());
  if (!possible) return fail(Code::kCorrupt, "{}: is no image of a tokenised file", where);
  image.count = static_cast<int32_t>(count);
  image.width = static_cast<int32_t>(width);
  image.height = static_cast<int32_t>(height);
  const char* const end = digest.data() + digest.size();
  const auto parsed = std::from_chars(digest.data(), end, image.source.digest, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return fail(Code::kCorrupt, "{}: field \"digest\" is {}", where, dump_json(digest));
  }
  return image;
}

}  // namespace

std::string image_index_path(const std::string& token_path) { return token_path + ".image-list"; }

std::string pictures_path(const std::string& token_path) { return token_path + ".pictures"; }

Result<std::string> read_image_source(const std::string& named, const std::string& folder,
                                      const std::string& where, ImageFile& source) {
  constexpr std::string_view kFile = "file://";
  std::string bytes;
  if (images::has_scheme(named, "data:")) {
    auto found = images::data_url_bytes(named);
    if (!found) {
      return fail(Code::kInvalidArgument,
                  "{}: is no data: URL of an image in base64, \"data:image/png;base64,…\"", where);
    }
    bytes = std::move(*found);
    source.file.clear();
  } else {
    const bool is_file = images::has_scheme(named, kFile);
    if (!is_file && named.find("://") != named.npos) {
      return fail(Code::kUnsupported,
                  "{}: nothing is downloaded; fetch {} and name the file, from the folder of the "
                  "data on",
                  where, named.substr(0, 200));
    }
    const std::filesystem::path path = is_file ? named.substr(kFile.size()) : named;
    std::error_code error;
    source.file = std::filesystem::absolute(std::filesystem::path(folder) / path, error).string();
    auto content = read_image_file(source.file);
    if (!content || !stamp(source.file, source.byte_count, source.changed_ns)) {
      Error wrong = content ? Error{Code::kIo, source.file + ": cannot be looked at"}
                            : std::move(content.error());
      return with_context(std::move(wrong), "{}", where);
    }
    bytes = std::move(*content);
  }
  source.byte_count = std::ssize(bytes);
  source.digest = digest_of(bytes);
  return bytes;
}

Result<std::string> read_image_again(const ImageFile& source, const std::string& token_path) {
  const std::string path = source.file.empty() ? pictures_path(token_path) : source.file;
  JIGE_TRY(std::string bytes, source.file.empty() ? read_picture(path, source.at, source.byte_count)
                                                  : read_image_file(path));
  if (digest_of(bytes) == source.digest) return bytes;
  return fail(Code::kUnavailable,
              "{}: is another image than when the data was read; put the former one back, or "
              "begin a new run with this one",
              path);
}

Status write_image_index(const std::string& token_path, std::span<const CorpusImage> images) {
  JIGE_TRY(AtomicFile file, AtomicFile::create(image_index_path(token_path)));
  for (const CorpusImage& image : images) {
    Json json = {{"token", image.token},
                 {"count", image.count},
                 {"width", image.width},
                 {"height", image.height},
                 {"digest", formats::checksum_text(image.source.digest)},
                 {"bytes", image.source.byte_count}};
    if (image.source.file.empty()) {
      json["at"] = image.source.at;
    } else {
      json["file"] = image.source.file;
      json["changed_ns"] = image.source.changed_ns;
    }
    const std::string line = dump_json(json) + "\n";
    JIGE_DO(file.write(line.data(), line.size()));
  }
  return file.commit();
}

Result<std::vector<CorpusImage>> read_image_index(const std::string& token_path,
                                                  int64_t token_count) {
  const std::string path = image_index_path(token_path);
  std::vector<CorpusImage> images;
  JIGE_TRY(LineReader lines, LineReader::open(path, kIndexLineBytesMax));
  int64_t least = 0;
  Line line;
  for (;;) {
    JIGE_TRY(const bool more, lines.next(line));
    if (!more) return images;
    const std::string where = fmt::format("{}:{}", path, line.number);
    JIGE_TRY(CorpusImage image, read_line(line.text, where));
    if (!line.ends || image.token < least || image.token + image.count > token_count) {
      return fail(Code::kCorrupt, "{}: contradicts the tokens of {}; remove both", where,
                  token_path);
    }
    least = image.token + image.count;
    images.push_back(std::move(image));
  }
}

bool images_unchanged(std::span<const CorpusImage> images) {
  return std::ranges::all_of(images, [](const CorpusImage& image) {
    const ImageFile& source = image.source;
    if (source.file.empty()) return true;
    int64_t byte_count = 0;
    int64_t changed_ns = 0;
    if (!stamp(source.file, byte_count, changed_ns)) return false;
    if (byte_count == source.byte_count && changed_ns == source.changed_ns) return true;
    return read_image_again(source, "").has_value();
  });
}

int64_t image_index_bytes(std::span<const CorpusImage> images) {
  auto bytes = static_cast<int64_t>(images.size_bytes());
  for (const CorpusImage& image : images) bytes += std::ssize(image.source.file);
  return bytes;
}

}  // namespace jige::train
