#include "cli/command.h"
#include "cli/commands.h"

namespace jige::cli {

std::span<const CommandEntry> command_list() {
  using enum CommandGroup;
  static const CommandEntry kCommands[] = {
      {"train", "train a model from text, or fine-tune one", kTrain, make_train_command},
      {"tokenizer train", "train a tokenizer from text", kTrain, make_tokenizer_train_command},
      {"plan train", "how to train on several devices, within their memory", kTrain,
       make_plan_train_command},
      {"simulate train", "time every schedule on a machine you describe", kTrain,
       make_simulate_train_command},
      {"bench train-schedules", "schedules of a training step beside one another", kTrain,
       make_bench_schedules_command},
      {"export", "a checkpoint of a run as a model folder", kTrain, make_export_command},
      {"report", "a run as one HTML page: loss, timeline, memory", kTrain, make_report_command},
      {"plot-loss", "draw the loss curve of a run", kTrain, make_plot_loss_command},
      {"chat", "talk to a model in the terminal", kUse, make_chat_command},
      {"generate", "continue a text", kUse, make_generate_command},
      {"serve", "serve a model over HTTP with the OpenAI API", kUse, make_serve_command},
      {"plan serve", "the settings of a server that carry most within bounds", kUse,
       make_plan_serve_command},
      {"score", "log-probabilities and right answers for a data set", kUse, make_score_command},
      {"embed", "vectors of texts, for search and clustering", kUse, make_embed_command},
      {"import", "a GGUF file as a model folder", kUse, make_import_command},
      {"tokenize", "turn text into token ids and back", kUse, make_tokenize_command},
      {"inspect", "what a model folder holds, and the memory it takes", kLook,
       make_inspect_command},
      {"bench", "how fast this machine is, and Jige on it", kLook, make_bench_command},
      {"top", "what a running server is doing, live", kLook, make_top_command},
      {"bench serve", "throughput and latencies of a server under load", kLook,
       make_bench_serve_command},
      {"bench speculation", "what drafts from a text's own tokens gain and cost", kLook,
       make_bench_speculation_command},
      {"bench collective", "all-reduce and its kin between ranks", kLook,
       make_bench_collective_command},
      {"simulate serve", "the same for scheduling policies, in virtual time", kLook,
       make_simulate_serve_command},
      {"cluster simulate", "schedule jobs on a shared cluster, in virtual time", kLook,
       make_cluster_simulate_command},
      {"cluster compare", "scheduling policies beside one another", kLook,
       make_cluster_compare_command},
      {"cluster train-policy", "train a placement policy in that simulation", kLook,
       make_cluster_train_command},
      {"cluster run", "schedule the jobs of a Slurm partition", kLook, make_cluster_run_command},
      {"cluster explain", "why a job runs here, or waits", kLook, make_cluster_explain_command},
      {"cluster top", "what that scheduler and its cluster are doing, live", kLook,
       make_cluster_top_command},
      {"cluster dead-man", "release held jobs when their scheduler is gone", kLook,
       make_cluster_dead_man_command},
      {"topology", "devices, links, and what they share", kLook, make_topology_command},
      {"profile agent", "sends and takes data on a host whose links are profiled", kLook,
       make_profile_agent_command},
      {"profile links", "rates of transfers, alone and together", kLook,
       make_profile_links_command},
      {"profile serve", "what an iteration of the serving engine takes", kLook,
       make_profile_serve_command},
      {"plan rings", "communication rings that do not congest", kLook, make_plan_rings_command},
      {"version", "what this build has, and which kernels run here", kLook, make_version_command},
      {"corpus", "write the practice corpus of the quickstart", kHidden, make_corpus_command},
      {"cluster demo-job", "a job of the demonstration of cluster run", kHidden,
       make_cluster_demo_job_command},
  };
  return kCommands;
}

}  // namespace jige::cli
