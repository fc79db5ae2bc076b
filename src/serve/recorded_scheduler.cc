#include "serve/recorded_scheduler.h"

#include <utility>

namespace jige::serve {

RecordedScheduler::RecordedScheduler(const plan::ServeSchedulerOptions& options,
                                     std::unique_ptr<EventLog> log)
    : scheduler_(options), log_(std::move(log)) {
  if (log_) log_->start(options);
}

Status RecordedScheduler::arrive(plan::RequestSpec spec) {
  if (log_) log_->arrive(spec);
  return scheduler_.arrive(std::move(spec));
}

void RecordedScheduler::draft(plan::RequestId request, std::span<const int32_t> tokens,
                              int32_t certain_count) {
  if (log_) log_->draft(request, tokens, certain_count);
  scheduler_.draft(request, tokens, certain_count);
}

std::optional<plan::Batch> RecordedScheduler::next_batch() {
  std::optional<plan::Batch> batch = scheduler_.next_batch();
  if (log_) log_->batch(batch);
  return batch;
}

std::vector<plan::RequestId> RecordedScheduler::complete(
    plan::BatchId batch, std::span<const plan::SampledNext> sampled) {
  std::vector<plan::RequestId> over = scheduler_.complete(batch, sampled);
  if (log_) log_->complete(batch, sampled, over);
  return over;
}

std::vector<plan::RequestId> RecordedScheduler::lose(plan::BatchId batch) {
  if (log_) log_->lose(batch);
  return scheduler_.lose(batch);
}

void RecordedScheduler::lose_caches() {
  if (log_) log_->lose_caches();
  scheduler_.lose_caches();
}

std::vector<plan::RequestId> RecordedScheduler::cancel(plan::RequestId request) {
  std::vector<plan::RequestId> over = scheduler_.cancel(request);
  if (log_) log_->cancel(request, over);
  return over;
}

void RecordedScheduler::discard(plan::RequestId request) {
  if (log_) log_->discard(request);
  scheduler_.discard(request);
}

void RecordedScheduler::change(const plan::ServeSettings& settings) {
  if (log_) log_->change(settings);
  scheduler_.change(settings);
}

}  // namespace jige::serve
