#include "bench_flags.h"

#include "cli/device_flags.h"
#include "cli/model_sizes.h"

namespace jige::bench {

void declare_sizes(CLI::App& app, std::vector<std::string>& to) {
  app.add_option("SIZE", to, "sizes of `jige train --size`")
      ->check(CLI::IsMember(cli::model_size_names()))
      ->capture_default_str();
}

void declare_size(CLI::App& app, std::string& to) {
  app.add_option("SIZE", to, "a size of `jige train --size`")
      ->check(CLI::IsMember(cli::model_size_names()))
      ->capture_default_str();
}

void declare_dtype(CLI::App& app, const std::string& name, DType& to) {
  const auto set = [&to](const std::string& type) { to = *parse_dtype(type); };
  app.add_option_function<std::string>(name, set, "what is computed in")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->default_str(std::string(dtype_info(to).name));
}

void declare_quantize(CLI::App& app, std::string& to) {
  app.add_option("--quantize", to, "the model's weights")
      ->check(CLI::IsMember({"none", "q8", "q4"}))
      ->capture_default_str();
}

void declare_machine(CLI::App& app, MachineOptions& to) {
  declare_dtype(app, "--dtype", to.dtype);
  app.add_option("--threads", to.threads, "0: all cores")
      ->check(CLI::Range(0, static_cast<int>(cli::threads_max())))
      ->capture_default_str();
  declare_positive(app, "--rounds", to.rounds, "how often each is measured");
}

}  // namespace jige::bench
