// A short digest by which two machines tell whether their copies of a model folder are the same.
//
// Over config.json, and of every tensor, in the order of names, its name, type, shape and first
// bytes: cheap even for large folders, and different for models that were trained further. It
// guards against mistakes, not against forgery.
// Threads: pure functions of the files.
#pragma once

#include <string>

#include "base/result.h"

namespace jige::formats {

// Fails as read_file and TensorFolder::open do.
Result<std::string> folder_digest(const std::string& folder);

}  // namespace jige::formats
