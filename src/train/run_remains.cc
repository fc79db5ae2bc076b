#include "train/run_remains.h"

#include <filesystem>
#include <vector>

#include "formats/staged_folder.h"

namespace jige::train {

void remove_run_remains(const std::string& out_folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> remains;
  const auto find = [&](const std::string& folder, auto is_remains) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (is_remains(it->path())) remains.push_back(it->path());
    }
  };
  find(out_folder + "/cache", [](const fs::path& path) {
    const std::string of = path.stem().extension().string();
    const bool temporary = path.extension().string().size() == 7;  // ".Ab3xYz"
    return temporary && (of == ".bin" || of == ".mask" || of == ".documents" ||
                         of == ".image-list" || of == ".pictures");
  });
  find(out_folder, [](const fs::path& path) {
    const std::string name = path.filename().string();
    const std::string hidden = formats::kStagedPrefix;
    return name.starts_with(hidden + "model.") || name.starts_with(hidden + "adapter.");
  });
  std::error_code error;
  for (const fs::path& path : remains) fs::remove_all(path, error);
}

}  // namespace jige::train
