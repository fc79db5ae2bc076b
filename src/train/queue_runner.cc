#include "train/queue_runner.h"

#include <exception>
#include <new>
#include <utility>

namespace jige::train {

QueueRunner::QueueRunner(const plan::PipelineGraph& graph, Execute execute)
    : graph_(&graph),
      execute_(std::move(execute)),
      spans_(graph.task_count()),
      ended_(graph.task_count()) {
  for (const plan::PipelineQueue& queue : graph.queues()) {
    threads_.emplace_back([this, &queue] { work(queue); });
  }
}

QueueRunner::~QueueRunner() {
  stopping_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status QueueRunner::run() {
  failed_ = false;
  error_.reset();
  start_ns_ = clock_.now_ns();
  working_ = static_cast<uint32_t>(threads_.size());
  ++round_;
  round_.notify_all();
  for (uint32_t left = working_; left > 0; left = working_) working_.wait(left);
  if (error_) return tl::unexpected(std::move(*error_));
  return {};
}

void QueueRunner::work(const plan::PipelineQueue& queue) {
  for (uint32_t round = 1;; ++round) {
    for (uint32_t now = round_; now != round; now = round_) round_.wait(now);
    if (stopping_) return;
    run_queue(queue, round);
    if (working_.fetch_sub(1) == 1) working_.notify_all();
  }
}

// What a library throws would end the process from a thread of ours.
Status QueueRunner::guarded(int32_t task) {
  try {
    return execute_(task);
  } catch (const std::bad_alloc&) {
    return fail(Code::kExhausted, "this machine has no more memory for the process");
  } catch (const std::exception& error) {
    return fail(Code::kInternal, "unexpected: {}", error.what());
  }
}

void QueueRunner::run_queue(const plan::PipelineQueue& queue, uint32_t round) {
  for (const int32_t task : queue.tasks) {
    for (const int32_t before : graph_->predecessors(task)) await(before, round);
    if (failed_) return;
    TaskSpan& span = spans_[static_cast<size_t>(task)];
    span.start_ns = clock_.now_ns() - start_ns_;
    Status status = guarded(task);
    span.end_ns = clock_.now_ns() - start_ns_;
    if (!status) return fail_run(std::move(status.error()), round);
    std::atomic<uint32_t>& ended = ended_[static_cast<size_t>(task)];
    ended = round;
    ended.notify_all();
  }
}

void QueueRunner::await(int32_t task, uint32_t round) {
  std::atomic<uint32_t>& ended = ended_[static_cast<size_t>(task)];
  for (uint32_t now = ended; now != round; now = ended) ended.wait(now);
}

// Wakes everybody: whoever waits for a task sees it as ended and then the failure.
void QueueRunner::fail_run(Error error, uint32_t round) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::move(error);
  }
  failed_ = true;
  for (std::atomic<uint32_t>& ended : ended_) {
    ended = round;
    ended.notify_all();
  }
}

}  // namespace jige::train
