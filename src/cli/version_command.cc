// jige version: what this build has, what this processor offers, which kernels run.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/cpu.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/table.h"
#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/quant_choice.h"
#include "tensor/cuda_device.h"

namespace jige::cli {
namespace {

struct BuildPart {
  const char* name;
  std::string found;  // empty: the build did not find it
};

std::vector<BuildPart> build_parts() {
  std::string cuda = kCudaVersion;
  if (!cuda.empty() && !cuda_built()) cuda += ", the toolkit alone, without nvcc: not built in";
  return {{"CUDA", cuda},           {"MPI", kMpiVersion},       {"NCCL", kNcclLibrary},
          {"Slurm", kSlurmProgram}, {"oneDNN", kOnednnLibrary}, {"hwloc", kHwlocVersion}};
}

std::vector<std::string> feature_names(const CpuFeatures& cpu) {
  std::vector<std::string> names;
  const auto add = [&](bool has, const char* name) {
    if (has) names.emplace_back(name);
  };
  add(cpu.avx2, "avx2");
  add(cpu.avx512, "avx512");
  add(cpu.avx512_vnni, "avx512_vnni");
  add(cpu.avx512_bf16, "avx512_bf16");
  add(cpu.amx_bf16, "amx_bf16");
  add(cpu.amx_int8, "amx_int8");
  return names;
}

// Which kernels each kind of work gets.
std::vector<std::pair<const char*, std::string>> kernel_choices() {
  const Isa isa = active_isa();
  return {{"matrix products, bf16", cpu::gemm_engine(DType::kBF16).name},
          {"matrix products, f32", cpu::gemm_engine(DType::kF32).name},
          {"weights of 8, 4 bits", cpu::quant_engine().name},
          {"everything else", isa_name(std::min(isa, Isa::kAvx512))}};
}

std::vector<std::pair<std::string, std::string>> gpu_lines() {
  const auto devices = list_cuda_devices();
  if (!devices) return {};
  std::vector<std::pair<std::string, std::string>> lines;
  for (const CudaDeviceInfo& gpu : *devices) {
    lines.emplace_back(
        fmt::format("cuda{}", gpu.index),
        fmt::format("{}, {}, compute capability {}.{}", gpu.name, format_bytes(gpu.memory_bytes),
                    gpu.compute_major, gpu.compute_minor));
  }
  return lines;
}

class VersionCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about("Says what this build has, what this processor offers and which kernels run here.");
    flags.toggle("--brief", brief_, "one line");
    output_.declare(flags, "print one JSON object");
    flags.example("jige version");
    flags.example("JIGE_ISA=avx2 jige version     # kernels of a weaker processor");
  }

  Status run() override {
    if (output_.json) {
      print_as_json();
    } else if (brief_) {
      print_brief();
    } else {
      print_as_text();
    }
    return {};
  }

 private:
  static void print_as_json() {
    const CpuFeatures& cpu = cpu_features();
    Json json{{"name", "jige"}, {"version", kVersion}};
    Json& build = json["build"];
    build = {{"type", kBuildType}, {"compiler", kCompiler}, {"sanitize", kSanitize}};
    for (const BuildPart& part : build_parts()) {
      build["parts"][part.name] = part.found.empty() ? Json(nullptr) : Json(part.found);
    }
    json["cpu"] = {{"model", cpu.model_name},
                   {"threads", cpu.logical_count},
                   {"features", feature_names(cpu)},
                   {"isa", isa_name(active_isa())}};
    for (const auto& [work, isa] : kernel_choices()) json["kernels"][work] = isa;
    json["gpus"] = Json::object();
    for (const auto& [name, text] : gpu_lines()) json["gpus"][name] = text;
    print_json(json);
  }

  static void print_brief() {
    const CpuFeatures& cpu = cpu_features();
    print_text(fmt::format("jige {} on {}, {}, {} kernels\n", kVersion, cpu.model_name,
                           counted(cpu.logical_count, "thread"), isa_name(active_isa())));
  }

  static void print_as_text() {
    const CpuFeatures& cpu = cpu_features();
    Table table({{}, {}});
    table.row({"build", fmt::format("{}, {}{}{}", kBuildType, kCompiler,
                                    *kSanitize ? ", sanitizer " : "", kSanitize)});
    for (const BuildPart& part : build_parts()) {
      table.row({part.name, part.found.empty() ? "not found" : part.found});
    }
    table.row(
        {"processor", fmt::format("{}, {}", cpu.model_name, counted(cpu.logical_count, "thread"))});
    table.row({"offers", fmt::format("{}", fmt::join(feature_names(cpu), " "))});
    for (const auto& [work, isa] : kernel_choices()) table.row({work, isa});
    for (const auto& [name, text] : gpu_lines()) table.row({name, text});
    print_text(fmt::format("jige {}\n{}", kVersion, table.render()));
  }

  bool brief_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_version_command() { return std::make_unique<VersionCommand>(); }

}  // namespace jige::cli
