#include "cli/random_model.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "base/file.h"
#include "base/threads.h"
#include "formats/tensor_folder.h"
#include "model/architecture.h"
#include "model/init.h"
#include "tensor/dtype.h"

namespace jige::cli {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 22;
constexpr int64_t kGrain = int64_t{1} << 14;

// The values of a parameter, some rows at a time.
Status produce(const model::ParamSpec& spec, DType dtype, uint64_t seed, ThreadTeam& team,
               const formats::RowSink& sink) {
  const Shape stored = spec.stored_shape();
  const int64_t rows = stored.rank() == 0 ? 1 : stored[0];
  const int64_t columns = stored.row_count_elements();
  const int64_t rows_at_once = std::clamp<int64_t>(kElementsAtOnce / columns, 1, rows);
  std::vector<float> values(static_cast<size_t>(rows_at_once * columns));
  std::vector<BFloat16> narrowed(dtype == DType::kBF16 ? values.size() : 0);
  for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - begin);
    team.parallel_for(count * columns, kGrain, [&](int64_t from, int64_t to, int) {
      const std::span<float> part(values.data() + from, static_cast<size_t>(to - from));
      model::fill_initial(part, spec, seed, begin * columns + from);
      if (narrowed.empty()) return;
      for (int64_t i = from; i < to; ++i) {
        narrowed[static_cast<size_t>(i)] = to_bfloat16(values[static_cast<size_t>(i)]);
      }
    });
    const Shape shape = stored.rank() <= 1 ? Shape{count} : Shape{count, columns};
    void* data = narrowed.empty() ? static_cast<void*>(values.data()) : narrowed.data();
    JIGE_DO(sink(TensorView::of(data, dtype, shape)));
  }
  return {};
}

}  // namespace

Status write_random_model(const std::string& folder, const formats::ModelConfig& config,
                          uint64_t seed) {
  JIGE_TRY(const auto architecture, model::Architecture::create(config));
  ThreadTeam team(std::max(cpu_features().logical_count, 1));
  std::vector<formats::TensorSource> sources;
  std::set<std::string> names;  // a tied head's matrix is listed under the embedding's name
  for (size_t node = 0; node < architecture->node_count(); ++node) {
    for (const model::ParamSpec& spec : architecture->block(node).params()) {
      if (!names.insert(spec.name).second) continue;
      sources.push_back({.name = spec.name,
                         .dtype = config.stored_dtype,
                         .shape = spec.stored_shape(),
                         .produce = [&spec, &team, seed,
                                     dtype = config.stored_dtype](const formats::RowSink& sink) {
                           return produce(spec, dtype, seed, team, sink);
                         }});
    }
  }
  JIGE_DO(make_folders(folder));
  JIGE_DO(formats::write_tensor_folder(folder, sources));
  return write_file_atomic(folder + "/config.json",
                           dump_json(formats::to_hf_config(config), 2) + "\n");
}

Result<TemporaryFolder> TemporaryFolder::make() {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = temporary_pattern(std::string(base && *base ? base : "/tmp") + "/jige-");
  if (!mkdtemp(pattern.data())) {
    return fail(Code::kIo, "{}: {}; set TMPDIR to a folder that can be written", pattern,
                std::strerror(errno));
  }
  return TemporaryFolder(pattern);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

}  // namespace jige::cli
