#include "cli/input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "base/file.h"
#include "base/file_marks.h"
#include "cli/shell_word.h"
#include "cli/sweep_folder.h"
#include "formats/gguf.h"
#include "formats/json_file.h"
#include "text/tokenizer.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

// Whether a file begins as GGUF files do.
bool is_gguf_file(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;  // a pipe would wait for its writer
  std::array<char, 4> begin{};
  std::ifstream(file, std::ios::binary).read(begin.data(), begin.size());
  return formats::is_gguf(std::as_bytes(std::span(begin)));
}

std::string import_line(const fs::path& file) {
  return fmt::format("`jige import {} --out FOLDER`", shell_word(file.string()));
}

// Of a file where a folder is needed.
Status is_a_file(const fs::path& file) {
  if (is_gguf_file(file)) {
    return fail(Code::kInvalidArgument,
                "{}: is a GGUF file; make a model folder of it, {}, and give that", file.string(),
                import_line(file));
  }
  const std::string parent = file.parent_path().string();
  return fail(Code::kInvalidArgument, "{}: is a file; give the folder it is in ({})", file.string(),
              parent.empty() ? "." : parent);
}

// The run that a folder lies in, such as its checkpoints or one of them; empty where there is none.
std::string run_around(const fs::path& folder) {
  std::error_code error;
  fs::path at = (fs::absolute(folder, error) / "").lexically_normal().parent_path();
  for (int up = 0; up < 2; ++up) {
    at = at.parent_path();
    if (fs::exists(at / "log.jsonl", error) && fs::exists(at / "checkpoints", error)) {
      return at.string();
    }
  }
  return "";
}

// Fails where a path may not be looked at, which says nothing of what is there.
Status may_look_at(const fs::path& path) {
  std::error_code error;
  [[maybe_unused]] const fs::file_status status = fs::status(path, error);
  if (error != std::errc::permission_denied) return {};
  return fail(Code::kIo, "{}: {}", path.string(), error.message());
}

constexpr size_t kTextBytesMax = size_t{1} << 30;
constexpr size_t kLineBytesMax = size_t{256} << 20;

// Closes what it opened; standard input stays open.
class Reader {
 public:
  static Result<Reader> open(const std::string& path) {
    if (path.empty() || path == "-") return Reader("standard input", STDIN_FILENO);
    std::error_code error;
    if (fs::is_directory(path, error)) {
      return fail(Code::kInvalidArgument, "{}: is a folder; name a file", path);
    }
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return file_error(path, "open", errno);
    return Reader(path, fd);
  }
  Reader(Reader&& other) noexcept : name_(std::move(other.name_)), fd_(other.fd_) {
    other.fd_ = STDIN_FILENO;
  }
  Reader& operator=(Reader&&) = delete;
  ~Reader() {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }

  const std::string& name() const { return name_; }

  // Whether what comes next, or the end, is there without waiting.
  bool has_more() const {
    pollfd asked{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&asked, 1, 0) != 0;
  }

  // Appends what comes next; false at the end.
  Result<bool> read_more(std::string& text) {
    char buffer[1 << 16];
    const ssize_t count = ::read(fd_, buffer, sizeof buffer);
    if (count < 0) return file_error(name_, "read", errno);
    text.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

 private:
  Reader(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  std::string name_;
  int fd_;
};

}  // namespace

Result<std::string> find_model_folder(const std::string& path) {
  std::error_code error;
  const fs::path folder(path);
  JIGE_DO(may_look_at(folder / "config.json"));
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    return fail(Code::kNotFound,
                "{}: no such folder; give the path of a model folder, which holds "
                "config.json, weights (model.safetensors) and a tokenizer",
                path);
  }
  if (!fs::is_directory(status)) JIGE_DO(is_a_file(folder));
  if (fs::exists(folder / "config.json", error)) return path;
  if (fs::exists(folder / "model" / "config.json", error)) return (folder / "model").string();
  if (fs::exists(folder / "adapter" / "adapter_config.json", error)) {
    return fail(
        Code::kNotFound,
        "{}: this run wrote an adapter and no model; `jige export {}` writes the two as one, and "
        "generate, chat, score and embed run the base with --adapter {}",
        path, shell_word(path), shell_word(path));
  }
  if (fs::exists(folder / "adapter_config.json", error)) {
    return fail(Code::kInvalidArgument,
                "{}: is a LoRA adapter and no model; give the model that the run wrote beside it, "
                "or make one from the run with `jige export`; generate, chat, score and embed run "
                "its base with --adapter {}",
                path, shell_word(path));
  }
  if (fs::exists(folder / "checkpoints", error)) {
    return fail(Code::kNotFound,
                "{}: this run has no model yet; continue it with the `jige train` command it was "
                "started with, or make one of its last checkpoint: `jige export {}`",
                path, shell_word(path));
  }
  if (const std::string run = run_around(folder); !run.empty()) {
    return fail(Code::kNotFound,
                "{}: is a part of a run and no model; give the run, {}, or make a model of one of "
                "its checkpoints: `jige export {}`",
                path, run, shell_word(run));
  }
  if (const std::string file = formats::gguf_file_in(path); !file.empty()) {
    return fail(Code::kNotFound,
                "{}: holds no config.json but the GGUF file {}; make a model folder of it, {}, and "
                "give that",
                path, file, import_line(folder / file));
  }
  return fail(Code::kNotFound, "{}: holds no config.json, so it is not a model folder{}", path,
              sweep_note(path));
}

Status check_run_folder(const std::string& path) {
  std::error_code error;
  JIGE_DO(may_look_at(fs::path(path) / "log.jsonl"));
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) return is_a_file(path);
  if (!fs::exists(status)) {
    return fail(Code::kNotFound,
                "{}: no such folder; give the folder of a run, which was --out of `jige train`",
                path);
  }
  for (const char* name : {"log.jsonl", "checkpoints"}) {
    if (fs::exists(fs::path(path) / name, error)) return {};
  }
  const std::string run = run_around(path);
  return fail(Code::kNotFound,
              "{}: holds no log.jsonl and no checkpoints, so it is not the folder of a run{}", path,
              run.empty() ? sweep_note(path) : "; it lies in that of one, " + run);
}

Status check_file(std::string_view flag, const std::string& path, std::string_view expected) {
  std::error_code error;
  JIGE_DO(may_look_at(path));
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    return fail(Code::kInvalidArgument, "{}: {} is a folder; give {}", flag, path, expected);
  }
  if (fs::exists(status)) return {};
  return fail(Code::kNotFound, "{}: {}: no such file; give {}", flag, path, expected);
}

Result<formats::ModelConfig> load_config_file(std::string_view flag, const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  JIGE_DO(check_file(flag, path,
                     folder ? "the file " + (fs::path(path) / "config.json").string()
                            : "a Hugging Face config.json"));
  return formats::load_model_config_file(path);
}

Result<std::string> find_tokenizer_folder(const std::string& path) {
  std::error_code error;
  const fs::path folder(path);
  JIGE_DO(may_look_at(folder / "tokenizer.json"));
  for (const fs::path& place : {folder, folder / "tokenizer", folder / "model"}) {
    for (const char* name : text::kTokenizerFileNames) {
      if (fs::exists(place / name, error)) return place.string();
    }
  }
  if (fs::is_directory(folder, error)) {
    return fail(Code::kNotFound, "{}: holds none of {}", path,
                fmt::join(text::kTokenizerFileNames, ", "));
  }
  if (is_gguf_file(folder)) return tl::unexpected<Error>(is_a_file(folder).error());
  return fail(fs::exists(folder, error) ? Code::kInvalidArgument : Code::kNotFound,
              "{}: is no folder; give one with a tokenizer ({})", path,
              fmt::join(text::kTokenizerFileNames, ", "));
}

Result<std::string> read_text(const TextSource& source, std::string_view flags_hint) {
  if (source.text && !source.file.empty()) {
    return fail(Code::kInvalidArgument, "{}: give one of the two, not both", flags_hint);
  }
  if (source.text) return *source.text;
  if (source.file.empty() && isatty(STDIN_FILENO) == 1) {
    return fail(Code::kInvalidArgument, "no text given: use {}, or pipe the text in", flags_hint);
  }
  JIGE_TRY(Reader reader, Reader::open(source.file));
  std::string text;
  for (bool more = true; more;) {
    JIGE_TRY(more, reader.read_more(text));
    if (text.size() > kTextBytesMax) {
      return fail(Code::kExhausted, "{}: is longer than 1 GiB", reader.name());
    }
  }
  return text;
}

Status for_each_line(const std::string& path,
                     const std::function<Result<bool>(std::string_view, int64_t)>& body,
                     const std::function<Status()>& idle) {
  JIGE_TRY(Reader reader, Reader::open(path));
  std::string text;
  int64_t number = 0;
  const auto give = [&](std::string_view line) -> Result<bool> {
    if (++number == 1) {
      if (begins_as_packed(line)) {
        return fail(Code::kUnsupported, "{}: is a packed file; unpack it first", reader.name());
      }
      if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    }
    return body(line, number);
  };
  size_t searched = 0;  // of a line that is not complete yet
  for (bool more = true; more;) {
    if (idle && !reader.has_more()) JIGE_DO(idle());
    JIGE_TRY(more, reader.read_more(text));
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', std::max(begin, searched))) != std::string::npos;
         begin = end + 1) {
      JIGE_TRY(const bool go_on, give(std::string_view(text).substr(begin, end - begin)));
      if (!go_on) return {};
    }
    text.erase(0, begin);
    searched = text.size();
    if (text.size() > kLineBytesMax) {
      return fail(Code::kExhausted, "{}: line {} is longer than 256 MiB", reader.name(),
                  number + 1);
    }
  }
  if (!text.empty()) JIGE_DO(give(text));
  return {};
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

Result<int64_t> count_filled_lines(const std::string& path, int64_t limit) {
  int64_t count = 0;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return count;
  JIGE_DO(for_each_line(path, [&](std::string_view line, int64_t) -> Result<bool> {
    count += !is_blank(line);
    return limit == 0 || count < limit;
  }));
  return count;
}

}  // namespace jige::cli
