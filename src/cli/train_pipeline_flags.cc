#include "cli/train_pipeline_flags.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/input.h"
#include "cli/schedule_choice.h"
#include "formats/json_file.h"
#include "plan/pipeline_costs.h"
#include "plan/pipeline_schedule_json.h"
#include "train/machine_identity.h"

namespace jige::cli {

void TrainPipelineFlags::declare(Flags& flags) {
  flags.section("Devices with little memory (logical, on this machine or its GPUs)");
  flags.integer("--devices N", devices, {.min = 0, .max = 256},
                "train as a pipeline over so many devices; 0: one device that holds everything, or "
                "one on each of several GPUs. They take the GPUs in turns");
  flags.bytes("--device-memory SIZE", device_memory,
              "memory of each device, never exceeded; without it no limit, or the share of what "
              "its GPU has left");
  flags.bytes("--host-memory SIZE", host_memory,
              "memory for what is kept on the host; without it no limit");
  flags.choice("--pipeline NAME", pipeline, schedule_choices(),
               "order of the passes; auto plans the fastest that fits");
  flags.choice("--optimizer NAME", optimizer, {"auto", "device", "sync", "async"},
               "on the devices; on the host behind all passes; on the host beside them");
  flags.choice("--parameters NAME", parameters, {"auto", "device", "host"},
               "where parameters stay; from the host they are fetched stage by stage");
  flags.choice("--recompute NAME", recompute, {"auto", "on", "off"},
               "run forward passes again instead of keeping what they computed");
  flags.choice("--clip-mode NAME", clip, {"auto", "exact", "speculate"},
               "updates wait for the gradient norm, or go ahead and are made again where they "
               "must; the result is the same");
  flags.integer("--forward-stages N", forward_stages, {.min = 0, .max = 1024},
                "pieces of the model on each device; 0: planned");
  flags.integer("--backward-stages N", backward_stages, {.min = 0, .max = 1024},
                "the same for backward passes, where a schedule has them apart (spipe)");
  flags.choice("--times NAME", times, {"measured", "assumed"},
               "what plans go by: a few of the model's blocks are timed here first, or counted");
  flags.text("--plan FILE", plan_file, "a plan made by `jige plan train -o`, instead of planning");
  flags.text("--trace FILE", trace_file,
             "write when every task of the first steps ran, as a Chrome "
             "trace");
}

Result<std::optional<train::PipelineOptions>> TrainPipelineFlags::options(
    const std::vector<int>& gpus) const {
  const bool chooses = pipeline != "auto" || optimizer != "auto" || parameters != "auto" ||
                       recompute != "auto" || clip != "auto" || forward_stages > 0 ||
                       backward_stages > 0;
  const bool asked = devices > 0 || device_memory > 0 || host_memory > 0 || chooses ||
                     !plan_file.empty() || !trace_file.empty() || gpus.size() > 1;
  if (!asked) return std::nullopt;
  if (!plan_file.empty() && (chooses || devices > 0)) {
    return fail(Code::kInvalidArgument,
                "--plan {} says how to train; give it without --devices and the other choices",
                plan_file);
  }
  train::PipelineOptions made{
      .devices =
          static_cast<int32_t>(devices > 0 ? devices : std::max<int64_t>(std::ssize(gpus), 1)),
      .device_bytes = device_memory,
      .host_bytes = host_memory,
      .times = times == "assumed" ? train::TimesSource::kAssumed : train::TimesSource::kMeasured,
      .trace_path = trace_file};
  made.kinds = chosen(pipeline, plan::schedule_name, plan::kScheduleKindCount);
  made.optimizers = chosen(optimizer, plan::optimizer_name, 3);
  made.recompute = switched(recompute, "on");
  made.host_parameters = switched(parameters, "host");
  if (clip != "auto") made.clip = chosen(clip, plan::clip_name, 3).front();
  if (forward_stages > 0) made.forward_stages = {static_cast<int32_t>(forward_stages)};
  if (backward_stages > 0) made.backward_stages = {static_cast<int32_t>(backward_stages)};
  if (!plan_file.empty()) JIGE_DO(read_plan(gpus, made));
  return made;
}

Status TrainPipelineFlags::read_plan(const std::vector<int>& gpus,
                                     train::PipelineOptions& made) const {
  JIGE_DO(check_file("--plan", plan_file, "a plan made by `jige plan train -o FILE`"));
  JIGE_TRY(const Json json, formats::load_json_object(plan_file));
  const auto schedule = json.find("schedule");
  if (schedule == json.end()) {
    return fail(Code::kNotFound,
                "{}: has no field \"schedule\"; plans are made by `jige plan train -o FILE`",
                plan_file);
  }
  JIGE_TRY(made.schedule, plan::schedule_from_json(*schedule, plan_file));
  made.devices = made.schedule->device_count;
  made.source = plan_file;
  JIGE_DO(train::check_same_gpus(json.value("gpus", Json()), gpus, plan_file));
  if (const auto costs = json.find("costs"); costs != json.end()) {
    JIGE_TRY(made.costs, plan::costs_from_json(*costs, plan_file + ": costs"));
  }
  if (const auto machine = json.find("machine"); machine != json.end()) {
    JIGE_DO(train::check_same_machine(*machine, plan_file));
    if (made.costs) made.times = train::TimesSource::kGiven;
  }
  return {};
}

}  // namespace jige::cli
