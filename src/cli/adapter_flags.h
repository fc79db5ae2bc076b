// LoRA adapters that commands run beside a model, without merging: --adapter.
//
// Threads: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/adapter.h"

namespace jige::cli {

// The adapter folder a path stands for: itself, or PATH/adapter where it is the folder of a run.
// Fails, with the remedy, where it is not there or holds no adapter_config.json; `flag` is the flag
// with its value.
Result<std::string> find_adapter_folder(std::string_view flag, const std::string& path);

// The adapters of "NAME=FOLDER" words beside a model of this name. Fails with kInvalidArgument,
// naming the word and the remedy, where it is none, or a name is another's; and as
// find_adapter_folder does.
Result<std::vector<model::AdapterSource>> read_named_adapters(const std::vector<std::string>& words,
                                                              std::string_view model_name);

}  // namespace jige::cli
