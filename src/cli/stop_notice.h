// StopNotice: what to tell who has asked a job of several ranks to stop, when it does not.
//
//   const StopNotice notice(group, StopNotice::Speaker::kFirstThere);
//   … steps, until the ranks have agreed to stop …
//
// A step ends when all ranks have ended it, so one that hangs keeps the others from stopping until
// it is given up. kPatienceSeconds after the signal this says once which ranks are silent, or that
// all are there, and what a second signal does.
// Threads: one of its own, which the destructor ends.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/async_group.h"

namespace jige::cli {

class StopNotice {
 public:
  static constexpr double kPatienceSeconds = 3;
  // A rank says that it is there many times as often.
  static constexpr double kSilentSeconds = 1.5;

  enum class Speaker {
    kFirstThere,  // all hear the signal and share a terminal: the first that is not silent
    kEach,        // each has a terminal of its own
  };

  // REQUIRES: an InterruptScope lives.
  StopNotice(std::shared_ptr<const comm::AsyncGroup> group, Speaker speaker);
  ~StopNotice();
  StopNotice(const StopNotice&) = delete;
  StopNotice& operator=(const StopNotice&) = delete;

 private:
  void main();
  void say() const;

  std::shared_ptr<const comm::AsyncGroup> group_;
  Speaker speaker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // last, as it uses the rest
};

}  // namespace jige::cli
