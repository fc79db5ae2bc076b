#include "cli/run_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "base/test_path.h"
#include "cli/report_pipeline.h"
#include "plan/pipeline_generate.h"

namespace jige::cli {
namespace {

std::string write_log(const std::string& text) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = test_path(info->name());
  EXPECT_TRUE(write_file_atomic(path, text));
  return path;
}

const char* const kRunLog =
    "{\"kind\":\"start\",\"version\":\"0.1\",\"cpu\":\"a <fast> one\",\"threads\":2,"
    "\"plan\":{\"parameters\":1234567,\"steps\":4,\"memory_predicted_bytes\":1048576}}\n"
    "{\"kind\":\"step\",\"step\":1,\"loss\":5.0,\"tokens\":100,\"tokens_per_s\":50.0,"
    "\"run_seconds\":2.0}\n"
    "{\"kind\":\"step\",\"step\":2,\"loss\":4.0,\"tokens\":100,\"tokens_per_s\":60.0,"
    "\"run_seconds\":4.0}\n"
    "{\"kind\":\"eval\",\"step\":2,\"loss\":4.5}\n";

// A record whose measured step is the predicted one, slowed down by `factor`.
train::PipelineRecord example_record(double factor) {
  train::PipelineRecord record;
  record.schedule = *plan::generate_pipeline({.kind = plan::ScheduleKind::kSPipe,
                                              .devices = 2,
                                              .micro_batches = 4,
                                              .block_count = 8,
                                              .forward_stages = 2,
                                              .backward_stages = 4,
                                              .host_parameters = true,
                                              .recompute = true,
                                              .optimizer = plan::OptimizerMode::kAsync});
  record.costs.blocks.assign(8, {.forward_s = 1e-3,
                                 .recompute_s = 1e-3,
                                 .backward_input_s = 1e-3,
                                 .backward_weight_s = 1e-3,
                                 .parameters = 100,
                                 .parameter_bytes = 1 << 20,
                                 .gradient_bytes = 1 << 20,
                                 .input_bytes = 1 << 10,
                                 .saved_bytes = 1 << 18});
  record.costs.rates = {.fetch_bytes_per_s = 1e9,
                        .offload_bytes_per_s = 1e9,
                        .link_bytes_per_s = 1e9,
                        .host_parameters_per_s = 1e5};
  record.memory = {.device_budget_bytes = {8 << 20, 8 << 20},
                   .device_planned_bytes = {7 << 20, 7 << 20},
                   .device_peak_bytes = {6 << 20, 6 << 20},
                   .host_planned_bytes = 64 << 20,
                   .host_peak_bytes = 64 << 20};
  const auto graph = plan::PipelineGraph::create(record.schedule);
  const auto times = plan::time_tasks(record.schedule, *graph, record.costs);
  std::vector<train::TaskSpan> spans;
  for (size_t i = 0; i < times.end.size(); ++i) {
    const auto ns = [&](double s) { return static_cast<int64_t>(std::llround(s * factor * 1e9)); };
    spans.push_back({.start_ns = ns(times.start[i]), .end_ns = ns(times.end[i])});
  }
  record.add_step(12, spans);
  return record;
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_tags(const std::string& html) {
  for (const char* tag : {"svg", "table", "tr", "figure", "h2", "body", "html", "style"}) {
    const auto open =
        count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " ");
    EXPECT_EQ(open, count(html, std::string("</") + tag + ">")) << tag;
    EXPECT_GT(open, 0) << tag;
  }
}

void expect_whole(const std::string& html) {
  expect_tags(html);
  // Nothing is loaded from elsewhere, and nothing runs.
  EXPECT_EQ(count(html, "http"), count(html, "xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* part : {"<script", "src=", "@import", "url(", "nan", "inf "}) {
    EXPECT_EQ(count(html, part), 0) << part;
  }
}

TEST(RunReport, ShowsLossAndMemoryOfARunWithoutASchedule) {
  const auto log = read_run_log(write_log(kRunLog));
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->training.size(), 2u);
  EXPECT_EQ(log->held_out.size(), 1u);
  EXPECT_EQ(log->tokens, 200);
  EXPECT_EQ(log->seconds, 4);
  EXPECT_EQ(log->parameters, 1234567);
  EXPECT_FALSE(log->ended);
  const auto html = run_report_html("a & b", *log, std::nullopt);
  ASSERT_TRUE(html);
  expect_whole(*html);
  EXPECT_EQ(count(*html, "<svg"), 2);
  EXPECT_EQ(count(*html, "<title>a &amp; b</title>"), 1);
  EXPECT_EQ(count(*html, "a &lt;fast&gt; one"), 1);
  EXPECT_EQ(count(*html, "2 of 4, not ended"), 1);
  EXPECT_EQ(count(*html, "1.00 MiB"), 1);
  EXPECT_EQ(count(*html, "Timeline"), 0);
}

TEST(RunReport, SaysWhyTheLastStepHasNoLoss) {
  const auto told = [](const std::string& lines) {
    const auto html = run_report_html("x", *read_run_log(write_log(lines)), std::nullopt);
    expect_whole(*html);
    return *html;
  };
  const std::string without = "{\"kind\":\"step\",\"step\":3,\"loss\":null";
  const std::pair<const char*, const char*> steps[] = {
      {"}\n", "as it is not finite"},
      {",\"skipped\":true,\"learned\":9}\n", "which was skipped as its gradients were not finite"},
      {",\"skipped\":false,\"learned\":0}\n", "in which nothing was learned"}};
  for (const auto& [rest, why] : steps) {
    const std::string html =
        told(kRunLog + without + rest + "{\"kind\":\"eval\",\"step\":3,\"loss\":null}\n");
    const std::string none = std::string("<td>none in step 3, ") + why;
    EXPECT_EQ(count(html, none + "; 4.0000 in step 2</td>"), 1) << html;
    EXPECT_EQ(count(html, "<td>none in step 3, as it is not finite; 4.5000 in step 2</td>"), 1);
    EXPECT_EQ(count(told(without + rest), none + "</td>"), 1) << "there never was one";
  }
}

TEST(RunReport, NamesTheBestMeasurementAndWhoseWeightsTheModelHas) {
  const std::string worse = std::string(kRunLog) +
                            "{\"kind\":\"step\",\"step\":3,\"loss\":3.0}\n"
                            "{\"kind\":\"eval\",\"step\":3,\"loss\":4.75}\n";
  const auto facts_of = [](const std::string& text) {
    return *run_report_html("x", *read_run_log(write_log(text)), std::nullopt);
  };
  EXPECT_EQ(facts_of(kRunLog).find("4.5000 in step 2"), std::string::npos);
  EXPECT_NE(facts_of(worse).find("4.5000 in step 2"), std::string::npos);
  EXPECT_EQ(facts_of(worse + "{\"kind\":\"end\",\"model_step\":3}\n").find("of step 3"),
            std::string::npos);
  EXPECT_NE(facts_of(worse + "{\"kind\":\"end\",\"model_step\":2}\n").find("of step 2"),
            std::string::npos);
}

TEST(RunReport, ShowsWhatRanksWaitedForOneAnother) {
  const auto log = read_run_log(
      write_log(std::string(kRunLog) +
                "{\"kind\":\"step\",\"step\":3,\"loss\":3.5,\"ranks\":4,\"wait_s\":0.25,"
                "\"wait_max_s\":0.5,\"sent_bytes\":1048576}\n"
                "{\"kind\":\"step\",\"step\":4,\"loss\":3.25,\"ranks\":4,\"wait_s\":0.75,"
                "\"wait_max_s\":1.0,\"sent_bytes\":1048576}\n"));
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->ranks, 4);
  EXPECT_EQ(log->wait_total_s, 1.0);
  EXPECT_EQ(log->wait_max_total_s, 1.5);
  const auto html = run_report_html("ranks", *log, std::nullopt);
  ASSERT_TRUE(html);
  expect_whole(*html);
  EXPECT_EQ(count(*html, "<svg"), 3);
  EXPECT_EQ(count(*html, "0.5000 s"), 1);
  EXPECT_EQ(count(*html, "0.7500 s"), 1);
  EXPECT_EQ(count(*html, "<td>ranks</td><td>4</td>"), 1);
}

TEST(RunReport, ShowsRewardsAndWhatLengthsAddToThem) {
  const std::string step = "{\"kind\":\"step\",\"step\":3,\"loss\":0.5,\"reward\":0.375";
  const auto plain = read_run_log(write_log(std::string(kRunLog) + step + "}\n"));
  ASSERT_TRUE(plain) << plain.error().message;
  const auto without = run_report_html("a run", *plain, std::nullopt);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(count(*without, "<td>last reward</td><td>0.3750</td>"), 1);
  EXPECT_EQ(count(*without, "What lengths add"), 0);
  const auto log = read_run_log(
      write_log(std::string(kRunLog) + step + ",\"full_share\":0.25,\"length_reward\":-0.125}\n"));
  ASSERT_TRUE(log) << log.error().message;
  const auto html = run_report_html("a run", *log, std::nullopt);
  ASSERT_TRUE(html) << html.error().message;
  expect_whole(*html);
  EXPECT_EQ(count(*html, "0.3750, full marks 25.0 %, by lengths -0.1250"), 1);
  EXPECT_EQ(count(*html, "What lengths add to rewards"), 1);
}

TEST(RunReport, ShowsHowExpertsAreUsed) {
  const auto plain = read_run_log(write_log(kRunLog));
  ASSERT_TRUE(plain);
  EXPECT_EQ(run_report_html("a run", *plain, std::nullopt)->find("Experts"), std::string::npos);
  const auto log =
      read_run_log(write_log(std::string(kRunLog) +
                             "{\"kind\":\"step\",\"step\":3,\"loss\":3.0,\"expert_busiest\":2.5,"
                             "\"expert_busiest_mean\":1.75,\"balance_loss\":0.0125}\n"));
  ASSERT_TRUE(log) << log.error().message;
  const auto html = run_report_html("a run", *log, std::nullopt);
  ASSERT_TRUE(html) << html.error().message;
  expect_whole(*html);
  EXPECT_NE(html->find("<h2>Experts</h2>"), std::string::npos);
  EXPECT_NE(html->find("2.50, mean of layers 1.75"), std::string::npos);
  EXPECT_NE(html->find("0.0125"), std::string::npos);
}

TEST(RunReport, ReadsALogThatIsStillWritten) {
  EXPECT_EQ(read_run_log(write_log(std::string(kRunLog) + "{\"kind\":\"st"))->training.size(), 2u);
  const auto corrupt = read_run_log(write_log("{\"kind\":\"st\n" + std::string(kRunLog)));
  ASSERT_FALSE(corrupt);
  EXPECT_EQ(corrupt.error().code, Code::kCorrupt);
  EXPECT_FALSE(read_run_log(write_log("{}\n[]\n3\n")));
  EXPECT_FALSE(read_run_log(testing::TempDir() + "no_such_log.jsonl"));
}

TEST(RunReport, DamagedLogsAreRefusedOrShown) {
  set_log_level(LogLevel::kError);
  const std::string log_text =
      std::string(kRunLog) +
      "{\"kind\":\"step\",\"step\":3,\"loss\":0.5,\"reward\":0.375,\"full_share\":0.25,"
      "\"ranks\":2,\"wait_s\":0.25,\"wait_max_s\":0.5,\"expert_busiest\":2.5}\n";
  int shown = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(300); ++seed) {
    const auto log = read_run_log(write_log(Mutator(seed).mutate(log_text)));
    if (!log) continue;
    const auto html = run_report_html("a run", *log, std::nullopt);
    ASSERT_TRUE(html) << seed << ": " << html.error().message;
    expect_tags(*html);
    for (size_t at = 0; (at = html->find("<svg", at)) != std::string::npos;) {
      const size_t end = html->find("</svg>", at);
      const std::string drawing = html->substr(at, end - at);
      EXPECT_EQ(count(drawing, "nan") + count(drawing, "inf"), 0) << drawing;
      at = end;
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << seed;
    ++shown;
  }
  EXPECT_GT(shown, 50);
  set_log_level(LogLevel::kInfo);
}

TEST(RunReport, ShowsPredictedBesideMeasured) {
  const auto log = read_run_log(write_log(kRunLog));
  const auto html = run_report_html("run", *log, example_record(1.25));
  ASSERT_TRUE(html) << html.error().message;
  expect_whole(*html);
  EXPECT_EQ(count(*html, "<svg"), 6);
  EXPECT_EQ(count(*html, ">Predicted: "), 1);
  EXPECT_EQ(count(*html, ">Measured: "), 1);
  EXPECT_EQ(count(*html, "step 12, +25.0 % against the prediction"), 1);
  EXPECT_EQ(count(*html, ">budget<"), 1);
  for (const char* part : {"ramp", "turn", "transfer stall", "optimizer tail"}) {
    EXPECT_GE(count(*html, std::string("devices' time, ") + part), 1) << part;
  }
}

TEST(RunReport, ARunWithoutMeasuredStepsShowsThePrediction) {
  train::PipelineRecord record = example_record(1);
  record.steps.clear();
  const auto log = read_run_log(write_log(kRunLog));
  const auto html = run_report_html("run", *log, record);
  ASSERT_TRUE(html);
  expect_whole(*html);
  EXPECT_EQ(count(*html, "<svg"), 5);
  EXPECT_EQ(count(*html, "measured step"), 0);
}

TEST(RunReport, NoPartOfTheDevicesTimeIsNegative) {
  // Messages that arrived long before their receive's thread woke up.
  train::PipelineRecord record = example_record(1);
  const auto graph = plan::PipelineGraph::create(record.schedule);
  std::vector<int64_t> end(record.schedule.tasks.size(), 0);
  std::vector<train::TaskSpan>& spans = record.steps[0].spans;
  Rng rng(5);
  for (const int32_t task : graph->topological_order()) {
    const auto i = static_cast<size_t>(task);
    int64_t start = 0;
    for (const int32_t p : graph->predecessors(task)) {
      start = std::max(start, end[static_cast<size_t>(p)]);
    }
    const int64_t length = spans[i].end_ns - spans[i].start_ns;
    start += static_cast<int64_t>(rng.below(3'000'000));
    spans[i] = {.start_ns = start, .end_ns = start + length};
    end[i] = start + length;
  }
  const auto view = view_pipeline(record);
  ASSERT_TRUE(view);
  for (const plan::DeviceTime& device : view->measured_split) {
    const double rest = unexplained_s(device, view->measured.step_s);
    for (const double part :
         {device.busy_s, device.ramp_s, device.turn_s, device.transfer_s, device.optimizer_s}) {
      EXPECT_GE(part, 0);
    }
    EXPECT_GT(rest, 0);
    EXPECT_NEAR(device.busy_s + device.idle_s() + rest, view->measured.step_s, 1e-9);
  }
}

TEST(RunReport, PartsOfTheDevicesTimeAddUpToTheStep) {
  train::PipelineRecord record = example_record(2);
  const auto same = view_pipeline(record);
  ASSERT_TRUE(same);
  ASSERT_EQ(same->measured_split.size(), 2u);
  for (size_t d = 0; d < 2; ++d) {
    const plan::DeviceTime& predicted = same->predicted_split[d];
    const plan::DeviceTime& measured = same->measured_split[d];
    // Slowed down evenly, every cause doubles and nothing is left over.
    EXPECT_NEAR(measured.busy_s, 2 * predicted.busy_s, 1e-6);
    EXPECT_NEAR(measured.ramp_s, 2 * predicted.ramp_s, 1e-6);
    EXPECT_NEAR(measured.turn_s, 2 * predicted.turn_s, 1e-6);
    EXPECT_NEAR(measured.transfer_s, 2 * predicted.transfer_s, 1e-6);
    EXPECT_NEAR(measured.optimizer_s, 2 * predicted.optimizer_s, 1e-6);
    EXPECT_NEAR(unexplained_s(measured, same->measured.step_s), 0, 1e-6);
  }
  EXPECT_NEAR(same->replayed_s, same->measured.step_s, 1e-6);
  // A millisecond between each two events: what tasks took is the same, the rest is not theirs.
  const auto graph = plan::PipelineGraph::create(record.schedule);
  std::vector<int64_t> end(record.schedule.tasks.size(), 0);
  train::MeasuredStep& step = record.steps[0];
  for (const int32_t task : graph->topological_order()) {
    const auto i = static_cast<size_t>(task);
    int64_t start = 0;
    for (const int32_t p : graph->predecessors(task)) {
      start = std::max(start, end[static_cast<size_t>(p)] + 1'000'000);
    }
    const int64_t length = step.spans[i].end_ns - step.spans[i].start_ns;
    step.spans[i] = {.start_ns = start, .end_ns = start + length};
    end[i] = start + length;
  }
  const auto late = view_pipeline(record);
  ASSERT_TRUE(late);
  EXPECT_NEAR(late->replayed_s, same->measured.step_s, 1e-6);
  EXPECT_GT(late->measured.step_s, same->measured.step_s + 0.01);
  for (const plan::DeviceTime& device : late->measured_split) {
    EXPECT_GT(unexplained_s(device, late->measured.step_s), 0.01);
    EXPECT_NEAR(device.busy_s + device.idle_s() + unexplained_s(device, late->measured.step_s),
                late->measured.step_s, 1e-9);
  }
}

TEST(RunReport, DrawsWhatPreferenceTuningSays) {
  const std::string path = write_log(
      "{\"kind\":\"step\",\"step\":1,\"loss\":0.69,\"margin\":0.0,\"accuracy\":0.0,"
      "\"chosen_logprob\":-20.0,\"rejected_logprob\":-30.0}\n"
      "{\"kind\":\"step\",\"step\":2,\"loss\":0.5,\"margin\":0.75,\"accuracy\":0.875,"
      "\"chosen_logprob\":-19.0,\"rejected_logprob\":-33.0}\n"
      "{\"kind\":\"eval\",\"step\":2,\"loss\":0.6,\"margin\":0.5,\"accuracy\":0.75,"
      "\"chosen_logprob\":-21.0,\"rejected_logprob\":-31.0}\n");
  const auto log = read_run_log(path);
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_EQ(log->preference.margin.size(), 2u);
  EXPECT_EQ(log->preference.accuracy[1].y, 87.5);
  ASSERT_EQ(log->preference_held_out.margin.size(), 1u);
  const auto html = run_report_html("run", *log, std::nullopt);
  ASSERT_TRUE(html);
  for (const char* text : {"Preferences", "Reward margin", "Accuracy", "Log-probabilities",
                           "<td>last margin</td><td>0.7500</td>",
                           "<td>last accuracy</td><td>87.5 %</td>", "loss (a pair)"}) {
    EXPECT_NE(html->find(text), std::string::npos) << text;
  }
  const auto plain = read_run_log(write_log(kRunLog));
  EXPECT_EQ(run_report_html("run", *plain, std::nullopt)->find("Preferences"), std::string::npos);
}

}  // namespace
}  // namespace jige::cli
