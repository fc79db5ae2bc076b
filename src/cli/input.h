// What commands read: model folders, texts from a flag, a file or standard input.
//
// Threads: one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"

namespace jige::cli {

// What stands in folders that this user may not look into is kIo, here and below.
//
// The model folder a path stands for: itself, or PATH/model where it is the folder of a finished
// run. Fails, with the remedy, when it is not there, is a file, or holds no config.json.
Result<std::string> find_model_folder(const std::string& path);

// The same for a folder that need not hold a model: FOLDER, FOLDER/tokenizer or FOLDER/model,
// whichever holds a tokenizer first.
Result<std::string> find_tokenizer_folder(const std::string& path);

// Fails, with the remedy, where the folder of a run is not there, is a file, or holds no run.
Status check_run_folder(const std::string& path);

// Fails, with the remedy, where the file that `flag` names is not there, or is a folder; `expected`
// is what to give, for example "a trace in CSV". Pipes and devices are files.
Status check_file(std::string_view flag, const std::string& path, std::string_view expected);

// Reads a model's configuration from the file that `flag` names. Fails, with the remedy, where it
// is not there, or is a folder; and as the readers do.
Result<formats::ModelConfig> load_config_file(std::string_view flag, const std::string& path);

// Where a text comes from: the flag's value, else the file ("-" is standard input), else standard
// input.
struct TextSource {
  std::optional<std::string> text;
  std::string file;
};

// The whole text, at most 1 GiB. Fails when standard input is a terminal, naming the flags that
// would give the text; `flags_hint` is for example "--prompt or --file".
Result<std::string> read_text(const TextSource& source, std::string_view flags_hint);

// Calls `body` with every line of a file ("-" or "" is standard input) and its number from 1;
// without its line feed and the byte order mark of a first one, as long as it returns true; and
// `idle`, where there is one, before it waits for more, as of a pipe. Stops at the first error, and
// with kUnsupported where the file is packed.
Status for_each_line(const std::string& path,
                     const std::function<Result<bool>(std::string_view line, int64_t number)>& body,
                     const std::function<Status()>& idle = {});

// Whether a line holds nothing but spaces.
bool is_blank(std::string_view line);
// The lines of a file that are not blank, `limit` at most where it is not 0, for progress bars; 0
// where they cannot be counted beforehand, as a pipe can be read but once.
Result<int64_t> count_filled_lines(const std::string& path, int64_t limit);

}  // namespace jige::cli
