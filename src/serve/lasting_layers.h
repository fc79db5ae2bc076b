// LastingLayers: layers on other machines that come back when a holder was lost.
//
//   LastingLayers layers(std::move(group), {.folder = …, .restore_s = 300});
//   …                                     // a call fails: lost()
//   JIGE_TRY(const bool back, layers.restore());   // again and again, until it is true
//
// When one holder is lost the connections to all of them are closed, and all are asked anew, again
// and again with growing pauses, until they hold the same layers as before or the time is up. What
// their caches held is gone. Invariant: once gone() tells an error, every call fails with it.
// Threads: one thread calls; a thread of its own connects meanwhile; give_up() and gone() may be
// called from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "model/layers_beyond.h"
#include "serve/layer_group.h"

namespace jige::serve {

class LastingLayers final : public model::LayersBeyond {
 public:
  struct Options {
    std::string folder;
    LayerGroupOptions group;                // of the holders that have layers
    model::InferenceSizes sizes;            // that they were asked for
    std::vector<model::LayerRange> ranges;  // of each
    double restore_s = 0;                   // how long lost layers are asked for; 0: not at all
  };

  LastingLayers(std::unique_ptr<LayerGroup> group, Options options);
  ~LastingLayers() override;
  LastingLayers(const LastingLayers&) = delete;
  LastingLayers& operator=(const LastingLayers&) = delete;

  // Ends what waits for holders, and asking for them, with this error.
  void give_up(const Error& error);
  // Why the layers will not come back, once that is so: kUnavailable, or what give_up() was told.
  std::optional<Error> gone() const;

  int64_t piece_rows(int64_t rows) const override;
  Status start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows) override;
  Status finish(int64_t count) override;
  Status copy_block(int32_t src, int32_t dst) override;
  Status copy_state(int32_t src, int32_t dst) override;
  bool lost() const override;
  Result<bool> restore() override;

 private:
  // The group, or why there is none.
  Result<LayerGroup*> group() const;
  // Waits for each holder's word as long as the options say, at most so long, and then until its
  // layers are loaded.
  Result<std::unique_ptr<LayerGroup>> connect(double seconds_max) const;
  // On the thread: connects until that is done, or is to end.
  void connect_again();
  // Waits; false where it is to end.
  bool pause(double seconds);
  void set_gone(const Error& error);

  Options options_;
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<LayerGroup> group_;  // null while it is being made anew
  std::unique_ptr<LayerGroup> made_;   // that takes its place
  std::optional<Error> why_;           // it was lost
  std::optional<Error> gone_;
  std::thread thread_;
  int64_t started_ = 0;  // pieces
  int64_t before_ = 0;   // of them, in groups before this one
};

}  // namespace jige::serve
