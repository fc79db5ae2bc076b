// What prompts and training reach of the rate of a model's own matrix products: oneDNN's and ours.
//
// usage: share_bench [15m|42m|110m]... [--seconds X] [--each]
//   sizes of `jige train --size`; X: of a measurement; --each: every product of training alone too
// The reference runs the products of the same step and nothing else, on the same shapes, weights
// packed beforehand, each layer with weights of its own: for a prompt of 512 tokens the forward
// products and one row of the head, for training on 2048 tokens all three forms. The work and the
// reference run in turns, so that both see the same machine; medians with quartiles.
//   arithmetic   FLOP/s of the work, attention's included, as a share of the FLOP/s of the
//   reference time         seconds of the reference as a share of the seconds of the work
// Exit status: 0; 1 after an error; 77 where oneDNN is not there or has no such products.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "bench_flags.h"
#include "cli/bench.h"
#include "cli/model_sizes.h"
#include "model/architecture.h"
#include "products.h"

namespace jige::bench {
namespace {

constexpr int kSkipped = 77;

struct Group {
  Product product;
  int64_t copies;  // layers that have it
};

std::vector<Product> layer_products(const formats::ModelConfig& config, DType type, Form form,
                                    int64_t tokens) {
  const int64_t width = config.hidden_size;
  const int64_t q = config.head_count * config.head_dim;
  const int64_t kv = config.kv_head_count * config.head_dim;
  std::vector<Product> products = {{type, form, tokens, width, q + 2 * kv},
                                   {type, form, tokens, q, width},
                                   {type, form, tokens, width, 2 * config.ffn_size},
                                   {type, form, tokens, config.ffn_size, width}};
  for (Product& product : products) product.accumulates = false;
  return products;
}

std::vector<Group> groups_of(const cli::BenchOptions& options, bool training) {
  const formats::ModelConfig& config = options.config;
  const int64_t tokens = training ? options.batch_tokens : options.prompt_tokens;
  std::vector<Group> groups;
  for (const Form form : {Form::kForward, Form::kInput, Form::kWeight}) {
    if (form != Form::kForward && !training) break;
    for (const Product& product : layer_products(config, options.dtype, form, tokens)) {
      groups.push_back({product, config.layer_count});
    }
    groups.push_back({{.type = options.dtype,
                       .form = form,
                       .tokens = training ? tokens : 1,
                       .inputs = config.hidden_size,
                       .outputs = config.vocab_size,
                       .accumulates = false},
                      1});
  }
  return groups;
}

double flops_of(const std::vector<Group>& groups) {
  double sum = 0;
  for (const Group& group : groups)
    sum += group.product.flops() * static_cast<double>(group.copies);
  return sum;
}

// The arithmetic of the work as bench_train and bench_inference count it: a prompt needs one row of
// the head.
Result<double> work_flops(const cli::BenchOptions& options, bool training) {
  JIGE_TRY(const auto architecture, model::Architecture::create(options.config));
  const auto tokens = static_cast<double>(training ? options.batch_tokens : options.prompt_tokens);
  const auto context = static_cast<double>(training ? options.context : options.prompt_tokens);
  const double all = architecture->forward_flops(tokens, context / 2);
  if (training) return 3 * all;
  return all - architecture->head().forward_flops(tokens - 1, context / 2);
}

struct Table {
  Machine& machine;
  std::string size;
  cli::BenchOptions options;

  // One line. `run` does all products of a step.
  Status line(bool training, const char* name, const std::function<void()>& run) {
    const double flops = flops_of(groups_of(options, training));
    JIGE_TRY(const double all, work_flops(options, training));
    options.products =
        cli::Reference{.name = name, .units = flops, .run = run, .pause = wait_until_quiet};
    const auto print = [&](const cli::Measurement& found) {
      if (found.share_of != name || found.share == 0) return;
      const auto shares = [&](double scale) {
        return fmt::format("{:.0f} % ({:.0f} to {:.0f})", scale * found.share,
                           scale * found.share_low, scale * found.share_high);
      };
      fmt::print("{:<16} {:>9.0f}  {:<28} {:>18} {:>18}\n", fmt::format("{} {}", found.name, size),
                 found.value, name, shares(100), shares(100 * flops / all));
      std::fflush(stdout);
    };
    if (training) return cli::bench_train(machine.device, options, {}, print);
    return cli::bench_inference(machine.device, options, print);
  }
};

Status bench_size(Machine& machine, const std::string& size, double seconds) {
  JIGE_TRY(const auto config, cli::make_llama_config({.size = size}, 32000));
  Table table{machine, size, {.config = config, .dtype = DType::kBF16, .seconds = seconds}};
  table.options.new_tokens = 1;
  for (const bool training : {false, true}) {
    const std::vector<Group> groups = groups_of(table.options, training);
    std::vector<std::pair<int64_t, std::unique_ptr<OurProduct>>> ours;
    std::vector<std::pair<int64_t, std::unique_ptr<PeerProduct>>> peers;
    for (const auto& [product, copies] : groups) {
      ours.emplace_back(copies, std::make_unique<OurProduct>(machine, product, copies));
      peers.emplace_back(copies, PeerProduct::create(product, copies));
      if (!peers.back().second) return fail(Code::kUnavailable, "oneDNN has no such product here");
    }
    const auto all = [](auto& products) {
      return [&products] {
        for (auto& [copies, product] : products) {
          for (int64_t copy = 0; copy < copies; ++copy) product->call(copy);
        }
      };
    };
    JIGE_DO(table.line(training, "oneDNN's products", all(peers)));
    JIGE_DO(table.line(training, "our products", all(ours)));
  }
  return {};
}

// Every product of a training step alone: our rate, and its ratio to the peer's in the same turn.
Status bench_each(Machine& machine, const std::string& size, double seconds) {
  JIGE_TRY(const auto config, cli::make_llama_config({.size = size}, 32000));
  for (const auto& [product, copies] :
       groups_of({.config = config, .dtype = DType::kBF16}, /*training=*/true)) {
    OurProduct ours(machine, product, 1);
    const auto peer = PeerProduct::create(product, 1);
    if (!peer) return fail(Code::kUnavailable, "oneDNN has no such product here");
    const auto work = [&]() -> Status {
      ours.call(0);
      return {};
    };
    JIGE_TRY(const auto timing, cli::time_in_turns(seconds, product.flops(), work,
                                                   {.units = product.flops(),
                                                    .run = [&] { peer->call(0); },
                                                    .pause = wait_until_quiet}));
    fmt::print(
        "{:<8} {:>5} x {:>5} to {:>5} {:>8.0f} GFLOP/s, {:.2f} of oneDNN's ({:.2f} to {:.2f})\n",
        form_name(product.form), product.tokens, product.inputs, product.outputs,
        product.flops() / timing.work.median_s * 1e-9, timing.share, timing.share_low,
        timing.share_high);
    std::fflush(stdout);
  }
  return {};
}

int run(const std::vector<std::string>& sizes, double seconds, bool each) {
  if (peer_name().empty()) {
    fmt::print(stderr, "oneDNN was not found when this was built; nothing to compare with\n");
    return kSkipped;
  }
  Machine machine(0);
  set_peer_threads(machine.device.team().size());
  fmt::print("{}, {}, {} threads, bf16; {}\n\n{:<16} {:>9}  {:<28} {:>18} {:>18}\n",
             cpu_features().model_name, isa_name(active_isa()), machine.device.team().size(),
             peer_name(), "work", "tokens/s", "beside", "arithmetic", "time");
  for (const std::string& size : sizes) {
    Status done = bench_size(machine, size, seconds);
    if (done && each) done = bench_each(machine, size, seconds / 4);
    if (!done) {
      fmt::print(stderr, "share_bench: {}: {}\n", size, done.error().message);
      return done.error().code == Code::kUnavailable ? kSkipped : 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  std::vector<std::string> sizes = {"15m", "110m"};
  double seconds = 5;
  bool each = false;
  CLI::App app("Training and prompts as a share of their matrix products alone", "share_bench");
  jige::bench::declare_sizes(app, sizes);
  app.add_option("--seconds", seconds, "of a measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--each", each, "every product of training alone, too");
  CLI11_PARSE(app, argc, argv);
  return jige::bench::run(sizes, seconds, each);
}
