// A load on engines whose threads are divided between prompts and next tokens, beside one engine
// that has all threads for both.
//
// usage: split_load_bench [15m|42m|110m] [--quantize none|q8|q4] [--threads N] [--users N]
//                         [--prompt SPEC] [--output SPEC]... [--requests N] [--rounds N]
// A model of `jige train --size` with random weights, users who ask again as soon as they have an
// answer. `apart`: an engine with half of the threads runs whole prompts, first come first served,
// and tells the first token; another with the other half makes the rest of the answers, of as many
// as there are. A request goes from one to the other for nothing: the second takes what its cache
// holds as the prompt's, as engines would that share it. The others are settings of one engine.
// All see the same requests, in turns, round by round; the first round does not count. Told are
// medians of rounds; ratios to `apart` are medians of the ratios of rounds, with quartiles.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "bench_flags.h"
#include "cli/bench_serve_model.h"
#include "cli/load_driver.h"
#include "cli/load_engine_target.h"
#include "machine.h"
#include "serve/engine.h"
#include "serve/engine_loop.h"
#include "sim/load_report.h"
#include "sim/workload.h"

namespace jige::bench {
namespace {

constexpr int32_t kAnswersAtOnce = 64;

struct SplitLoadOptions {
  std::string size = "15m";
  std::string quantize = "none";
  int threads = 2;
  int64_t users = 16;
  std::string prompt = "32:512";
  std::vector<std::string> outputs = {"1:32", "1:128"};
  int64_t requests = 48;
  int rounds = 3;
};

// An engine for next tokens alone: of a prompt it runs the last token and takes the others as
// known.
class DecodeEngine {
 public:
  explicit DecodeEngine(cli::BenchServeModel& served)
      : inbox_({options_.waiting_requests_max, options_.waiting_prompt_tokens_max}),
        board_(served.model->sizes().kv_block_count, options_.stall_seconds_max,
               plan::settings_of(scheduler_options(options_, served.model->sizes()))),
        loop_(*served.model, *served.tokenizer,
              serve::end_ids(*served.tokenizer, served.model->config()),
              serve::RecordedScheduler(scheduler_options(options_, served.model->sizes()), nullptr),
              {options_, inbox_, board_, histograms_, cut_prompts}),
        thread_([this] { loop_.run(); }) {}
  ~DecodeEngine() {
    inbox_.stop();
    thread_.join();
  }

  void submit(serve::EngineRequest request, std::shared_ptr<serve::RequestSink> sink) {
    const int64_t now_ns = RealClock().now_ns();
    const serve::RequestId id = next_id_++;
    board_.arrived({.id = id,
                    .prompt_tokens = std::ssize(request.prompt),
                    .tokens_max = request.tokens_max,
                    .choice_count = 1},
                   now_ns);
    const Status status = inbox_.push({id, std::move(request), sink, now_ns}, 1);
    if (!status) sink->on_failed(status.error());
  }

 private:
  static void cut_prompts(plan::Batch& batch) {
    for (plan::WorkItem& item : batch.items) {
      const auto cut = static_cast<int32_t>(item.tokens.size()) - 1;
      item.tokens.erase(item.tokens.begin(), item.tokens.begin() + cut);
      item.context_count += cut;
    }
  }

  // Batches as large as they come: what is cut counts in them before.
  const serve::EngineOptions options_{.batch_requests_max = kAnswersAtOnce,
                                      .batch_tokens_max = INT32_MAX};
  serve::Inbox inbox_;
  serve::StatusBoard board_;
  serve::EngineHistograms histograms_;
  serve::EngineLoop loop_;
  std::atomic<serve::RequestId> next_id_{1};
  std::thread thread_;  // after what it uses
};

// A request on its way through both engines: the same sink hears of each.
class ApartTarget final : public cli::LoadTarget {
 public:
  ApartTarget(serve::Engine& prompts, DecodeEngine& decode, int64_t vocab_size, uint64_t prompt_key)
      : prompts_(prompts), decode_(decode), vocab_size_(vocab_size), prompt_key_(prompt_key) {}

  double now_s() const override { return board_->watch.seconds(); }
  void send(size_t index, const sim::RequestShape& shape) override {
    serve::EngineRequest request;
    request.prompt = sim::random_prompt(prompt_key_, index, shape.prompt_tokens, vocab_size_);
    request.logprobs = false;
    request.tokens_max = 1;
    request.ignore_eos = true;
    serve::EngineRequest rest = request;
    rest.prompt.push_back(0);
    rest.tokens_max = shape.output_tokens - 1;
    const auto sink = std::make_shared<Sink>(board_, index, decode_, std::move(rest));
    const auto id = prompts_.submit(std::move(request), sink);
    if (!id) sink->on_failed(id.error());
  }
  void wait(double seconds_max, std::vector<Finished>& finished) override {
    std::unique_lock lock(board_->mutex);
    board_->came.wait_for(lock, std::chrono::duration<double>(seconds_max),
                          [&] { return !board_->finished.empty(); });
    std::ranges::move(std::exchange(board_->finished, {}), std::back_inserter(finished));
  }
  void cancel_all() override {}

 private:
  struct Board {
    const StopWatch watch;
    std::mutex mutex;
    std::condition_variable came;
    std::vector<Finished> finished;
  };
  class Sink final : public serve::RequestSink, public std::enable_shared_from_this<Sink> {
   public:
    Sink(std::shared_ptr<Board> board, size_t index, DecodeEngine& decode,
         serve::EngineRequest rest)
        : board_(std::move(board)), decode_(decode), rest_(std::move(rest)) {
      result_.index = index;
      result_.outcome.prompt_tokens = std::ssize(rest_.prompt) - 1;
    }
    void on_piece(int32_t, const serve::AnswerPiece& piece) override {
      if (piece.token >= 0) result_.outcome.token_came(board_->watch.seconds());
    }
    void on_choice(const serve::ChoiceEnd&) override {}
    void on_done(const serve::RequestReport&) override {
      if (rest_.tokens_max > 0) {
        serve::EngineRequest rest = std::exchange(rest_, {});
        rest_.tokens_max = 0;
        return decode_.submit(std::move(rest), shared_from_this());
      }
      finish();
    }
    void on_failed(const Error& error) override {
      result_.outcome.failure = code_name(error.code);
      finish();
    }

   private:
    void finish() {
      result_.outcome.end_s = board_->watch.seconds();
      {
        const std::lock_guard lock(board_->mutex);
        board_->finished.push_back(std::move(result_));
      }
      board_->came.notify_one();
    }

    std::shared_ptr<Board> board_;
    DecodeEngine& decode_;
    serve::EngineRequest rest_;
    Finished result_;
  };

  serve::Engine& prompts_;
  DecodeEngine& decode_;
  const int64_t vocab_size_;
  const uint64_t prompt_key_;
  std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

struct Way {
  std::string name;
  serve::EngineOptions options = {};  // of one engine
  bool apart = false;
  // By round.
  std::vector<double> rate = {}, first_s = {}, gap_s = {}, gap_tail_s = {}, whole_s = {};
};

std::vector<Way> ways() {
  const auto chunked = [](int32_t tokens) {
    return Way{.name = fmt::format("chunked {}", tokens),
               .options = {.batch_requests_max = kAnswersAtOnce, .batch_tokens_max = tokens}};
  };
  return {{.name = "apart", .apart = true},
          chunked(16),
          chunked(32),
          chunked(64),
          chunked(128),
          chunked(512)};
}

double median(std::vector<double> values) { return sim::summarise(std::move(values)).p50; }

std::string ratio(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.size(); ++i) ratios.push_back(of[i] / to[i]);
  std::ranges::sort(ratios);
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", sim::quantile(ratios, 0.5),
                     sim::quantile(ratios, 0.25), sim::quantile(ratios, 0.75));
}

class SplitLoad {
 public:
  SplitLoad(const SplitLoadOptions& options, cli::BenchServeModel& both,
            cli::BenchServeModel& prompts, cli::BenchServeModel& decode)
      : options_(options), both_(both), prompts_(prompts), decode_(decode) {}

  Status run(const std::string& output) {
    sim::WorkloadOptions wanted{.request_count = options_.requests};
    JIGE_TRY(wanted.lengths.prompt, sim::parse_length(options_.prompt, "--prompt"));
    JIGE_TRY(wanted.lengths.output, sim::parse_length(output, "--output"));
    std::vector<Way> all = ways();
    for (int round = 0; round <= options_.rounds; ++round) {
      wanted.seed = static_cast<uint64_t>(round);
      const sim::Workload load = sim::make_workload(wanted);
      for (Way& way : all) JIGE_DO(measure(way, load.requests, round));
    }
    fmt::print("\nanswers of {}\n{:<12} {:>10} {:>9} {:>9} {:>9} {:>9}   {:<17}  {}\n", output, "",
               "requests/s", "TTFT", "ITL", "ITL 99 %", "E2E", "requests/s", "ITL 99 %");
    for (const Way& way : all) {
      fmt::print("{:<12} {:>10.2f} {:>9.1f} {:>9.2f} {:>9.2f} {:>9.0f}   {:<17}  {}\n", way.name,
                 median(way.rate), median(way.first_s) * 1e3, median(way.gap_s) * 1e3,
                 median(way.gap_tail_s) * 1e3, median(way.whole_s) * 1e3,
                 ratio(way.rate, all[0].rate), ratio(way.gap_tail_s, all[0].gap_tail_s));
    }
    std::fflush(stdout);
    return {};
  }

 private:
  Status measure(Way& way, const std::vector<sim::RequestShape>& requests, int round) {
    static const std::atomic<bool> kGoOn{false};
    const int64_t vocab_size = both_.model->config().vocab_size;
    const uint64_t key = derive_key(static_cast<uint64_t>(round), way.name);
    cli::LoadRun done;
    if (way.apart) {
      JIGE_TRY(const auto prompts, serve::Engine::create(*prompts_.model, *prompts_.tokenizer,
                                                         {.policy = plan::ServePolicy::kOrca,
                                                          .batch_requests_max = 1}));
      DecodeEngine decode(decode_);
      ApartTarget target(*prompts, decode, vocab_size, key);
      done = cli::drive_load(requests, options_.users, target, kGoOn);
      prompts->stop();
    } else {
      serve::EngineOptions options = way.options;
      options.sampling_team = &both_.devices.team();
      JIGE_TRY(const auto engine,
               serve::Engine::create(*both_.model, *both_.tokenizer, std::move(options)));
      cli::EngineTarget target(*engine, vocab_size, key);
      done = cli::drive_load(requests, options_.users, target, kGoOn);
      engine->stop();
    }
    const sim::LoadReport report = sim::make_report(done.outcomes);
    if (report.succeeded != report.requests) return fail(Code::kInternal, "requests failed");
    if (round == 0) return {};
    way.rate.push_back(report.requests_per_s);
    way.first_s.push_back(report.ttft_s.mean);
    way.gap_s.push_back(report.itl_s.mean);
    way.gap_tail_s.push_back(report.itl_s.p99);
    way.whole_s.push_back(report.e2e_s.mean);
    return {};
  }

  const SplitLoadOptions& options_;
  cli::BenchServeModel& both_;
  cli::BenchServeModel& prompts_;
  cli::BenchServeModel& decode_;
};

Result<cli::BenchServeModel> load(const SplitLoadOptions& options, int threads) {
  cli::BenchServeModelFlags flags;
  flags.random = options.size;
  flags.quantize = options.quantize;
  flags.device.threads = threads;
  return flags.load(2048, 1024, 512, kAnswersAtOnce);
}

Status run(const SplitLoadOptions& options) {
  const int half = std::max(options.threads / 2, 1);
  JIGE_TRY(cli::BenchServeModel both, load(options, options.threads));
  JIGE_TRY(cli::BenchServeModel prompts, load(options, options.threads - half));
  JIGE_TRY(cli::BenchServeModel decode, load(options, half));
  fmt::print("{}, {}, {}\n{} threads together, {} and {} apart, {} users, prompts of {}; ms\n",
             cpu_features().model_name, isa_name(active_isa()), both.text, options.threads,
             options.threads - half, half, options.users, options.prompt);
  for (const std::string& output : options.outputs) {
    JIGE_DO(SplitLoad(options, both, prompts, decode).run(output));
  }
  return {};
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::SplitLoadOptions options;
  CLI::App app("A load on engines of divided threads, beside one engine", "split_load_bench");
  jige::bench::declare_size(app, options.size);
  app.add_option("--threads", options.threads)->check(CLI::Range(2, 1024))->capture_default_str();
  jige::bench::declare_positive(app, "--users", options.users, "who ask at once");
  jige::bench::declare_positive(app, "--requests", options.requests, "of a round");
  jige::bench::declare_positive(app, "--rounds", options.rounds, "how often each is measured");
  app.add_option("--prompt", options.prompt, "tokens of prompts")->capture_default_str();
  app.add_option("--output", options.outputs, "tokens of answers, a load each")
      ->capture_default_str();
  jige::bench::declare_quantize(app, options.quantize);
  CLI11_PARSE(app, argc, argv);
  const jige::Status done = jige::bench::run(options);
  if (done) return 0;
  fmt::print(stderr, "split_load_bench: {}\n", done.error().message);
  return 1;
}
