// Flags that benchmarks have in common, read by CLI11: --help, ranges and errors for unknown words
// come with it.
//
//   AdapterBenchOptions options;  // a MachineOptions with more
//   CLI::App app("Training steps of an adapter", "adapter_bench");
//   declare_sizes(app, options.sizes);
//   declare_machine(app, options);
//   CLI11_PARSE(app, argc, argv);
//
// Threads: one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace jige::bench {

struct MachineOptions {
  DType dtype = DType::kBF16;
  int threads = 0;  // 0: all cores
  int rounds = 9;
};

// What `to` holds is the default of each. They outlive the reading.
//
// "[SIZE...]" of `jige train --size`, or one.
void declare_sizes(CLI::App& app, std::vector<std::string>& to);
void declare_size(CLI::App& app, std::string& to);
// `name` is "--dtype", or "DTYPE" for an argument: f32 or bf16.
void declare_dtype(CLI::App& app, const std::string& name, DType& to);
// "--quantize": none, q8 or q4, of weights.
void declare_quantize(CLI::App& app, std::string& to);
// "--dtype", "--threads" and "--rounds".
void declare_machine(CLI::App& app, MachineOptions& to);
// "--NAME N", above 0.
template <typename Number>
void declare_positive(CLI::App& app, const std::string& flag, Number& to, const std::string& help) {
  app.add_option(flag, to, help)->check(CLI::PositiveNumber)->capture_default_str();
}

}  // namespace jige::bench
