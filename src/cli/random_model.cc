#include "cli/random_model.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/file.h"
#include "formats/tensor_folder.h"
#include "model/architecture.h"
#include "model/init.h"
#include "tensor/dtype.h"

namespace jige::cli {
namespace {

constexpr int64_t kRowsAtOnce = 256;

// The values of a parameter, some rows at a time.
Status produce(const model::ParamSpec& spec, DType dtype, uint64_t seed,
               const formats::RowSink& sink) {
  const Shape stored = spec.stored_shape();
  const int64_t rows = stored.rank() == 0 ? 1 : stored[0];
  const int64_t columns = stored.row_count_elements();
  std::vector<float> values;
  std::vector<BFloat16> narrowed;
  for (int64_t begin = 0; begin < rows; begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - begin);
    values.resize(static_cast<size_t>(count * columns));
    model::fill_initial(values, spec, seed, begin * columns);
    const Shape shape = stored.rank() <= 1 ? Shape{count} : Shape{count, columns};
    void* data = values.data();
    if (dtype == DType::kBF16) {
      narrowed.clear();
      for (const float value : values) narrowed.push_back(to_bfloat16(value));
      data = narrowed.data();
    }
    JIGE_DO(sink(TensorView::of(data, dtype, shape)));
  }
  return {};
}

}  // namespace

Status write_random_model(const std::string& folder, const formats::ModelConfig& config,
                          uint64_t seed) {
  JIGE_TRY(const auto architecture, model::Architecture::create(config));
  std::vector<formats::TensorSource> sources;
  std::set<std::string> names;  // a tied head's matrix is listed under the embedding's name
  for (size_t node = 0; node < architecture->node_count(); ++node) {
    for (const model::ParamSpec& spec : architecture->block(node).params()) {
      if (!names.insert(spec.name).second) continue;
      sources.push_back(
          {.name = spec.name,
           .dtype = config.stored_dtype,
           .shape = spec.stored_shape(),
           .produce = [&spec, seed, dtype = config.stored_dtype](const formats::RowSink& sink) {
             return produce(spec, dtype, seed, sink);
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
