// One maker per command; each is defined in the file named after it.
// Threads: one thread.
#pragma once

#include <memory>

#include "cli/command.h"

namespace jige::cli {

std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_bench_collective_command();
std::unique_ptr<Command> make_bench_schedules_command();
std::unique_ptr<Command> make_bench_serve_command();
std::unique_ptr<Command> make_bench_speculation_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_cluster_compare_command();
std::unique_ptr<Command> make_cluster_dead_man_command();
std::unique_ptr<Command> make_cluster_demo_job_command();
std::unique_ptr<Command> make_cluster_explain_command();
std::unique_ptr<Command> make_cluster_run_command();
std::unique_ptr<Command> make_cluster_simulate_command();
std::unique_ptr<Command> make_cluster_top_command();
std::unique_ptr<Command> make_cluster_train_command();
std::unique_ptr<Command> make_corpus_command();
std::unique_ptr<Command> make_embed_command();
std::unique_ptr<Command> make_rerank_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_import_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_layers_command();
std::unique_ptr<Command> make_plan_rings_command();
std::unique_ptr<Command> make_plan_serve_command();
std::unique_ptr<Command> make_plan_train_command();
std::unique_ptr<Command> make_plot_loss_command();
std::unique_ptr<Command> make_report_command();
std::unique_ptr<Command> make_profile_agent_command();
std::unique_ptr<Command> make_profile_links_command();
std::unique_ptr<Command> make_profile_serve_command();
std::unique_ptr<Command> make_route_command();
std::unique_ptr<Command> make_score_command();
std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_simulate_route_command();
std::unique_ptr<Command> make_simulate_serve_command();
std::unique_ptr<Command> make_simulate_train_command();
std::unique_ptr<Command> make_sweep_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_tokenizer_train_command();
std::unique_ptr<Command> make_top_command();
std::unique_ptr<Command> make_topology_command();
std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_version_command();

}  // namespace jige::cli
