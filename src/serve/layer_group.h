// LayerGroup: the layers of a model that holders on other machines compute (layer_holder.h), or on
// other GPUs of this one (local_holder.h), until one of them is lost (lasting_layers.h makes
// another group then).
//
//   JIGE_TRY(auto group, LayerGroup::connect(folder, {.holders = addresses}));
//   JIGE_TRY(auto divided, load_divided(folder, device, options, std::move(group), …));
//
// Rows go from here to each holder in turn, and back. A holder has several pieces under way: while
// it computes one, the next is sent. Invariant: once a holder is lost, everything fails with the
// error that names it; nothing is asked for again, since the caches there are gone.
// Threads: one thread calls; two for each holder send and receive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/socket.h"
#include "serve/layer_messages.h"
#include "serve/local_holder.h"

namespace jige::serve {

struct LayerGroupOptions {
  // In the order of the layers they get; those of this process first.
  std::vector<std::shared_ptr<LocalHolder>> local = {};
  std::vector<comm::Address> holders = {};
  std::optional<LayerComputer> gpu = {};  // that computes here; none: the processor does
  // Rows of a piece; 0: of GPUs 512, where fewer would take as long to read weights as to multiply
  // them, of processors alone 64 at least.
  int64_t piece_rows = 0;
  double connect_s = 10;
  const std::atomic<bool>* cancelled = nullptr;  // ends the waiting for holders; may be null
};

class LayerGroup {
 public:
  struct Holder {
    std::string name;  // its address, or "cuda:1"
    LayerGreeting greeting;
  };

  // Warns where kernels differ. Fails with kUnavailable where one does not answer, kInvalidArgument
  // where its folder is not the same as this one.
  static Result<std::unique_ptr<LayerGroup>> connect(const std::string& folder,
                                                     const LayerGroupOptions& options);
  ~LayerGroup();
  LayerGroup(const LayerGroup&) = delete;
  LayerGroup& operator=(const LayerGroup&) = delete;

  const LayerGroupOptions& options() const { return options_; }
  const std::vector<Holder>& holders() const { return holders_; }
  // Asks each for its layers, those of `sizes` but the range; they load them while this goes on. A
  // holder with an empty range is let go.
  Status ask(model::InferenceSizes sizes, const std::vector<model::LayerRange>& ranges);
  // Waits until all have loaded; the bytes they took.
  Result<std::vector<int64_t>> wait_until_held();
  // Ends what waits for holders, with this error; from any thread.
  void give_up(const Error& error) { lose(error); }
  // That of a holder that was lost; from any thread.
  std::optional<Error> error() const;

  // As those of model::LayersBeyond.
  int64_t piece_rows(int64_t rows) const;
  // The most that a piece has of a forward of up to so many rows.
  int64_t piece_rows_max(int64_t rows) const;
  Status start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows);
  Status finish(int64_t count);
  Status copy_block(int32_t src, int32_t dst);
  Status copy_state(int32_t src, int32_t dst);

 private:
  // What goes to a holder: rows that come back, or a copy.
  struct Word {
    std::vector<std::byte> head;       // the rows follow
    std::vector<std::byte> lent_head;  // to who is lent the rows
    TensorView rows;                   // none: nothing comes back
    bool is_sent = false;  // to the holder that has it now; until then rows are read here
  };
  using WordRef = std::shared_ptr<Word>;
  struct Link {
    comm::Socket socket;
    LocalHolder* local = nullptr;  // at the other end; null: rows are sent
    std::deque<WordRef> to_send;
    std::deque<WordRef> awaited;
    std::thread sender, receiver;
  };

  explicit LayerGroup(const LayerGroupOptions& options) : options_(options) {}
  // Greets who is at the other end of a connection.
  Status add(comm::Socket socket, LocalHolder* local, const std::string& folder,
             const std::string& digest, comm::Deadline deadline);
  // Gives a holder what is to go there.
  Status send(Link& link, const Word& word, comm::Deadline deadline);
  // Of every forward; 0: it depends on how many rows that has.
  int64_t fixed_piece_rows() const;
  void start_threads();
  void send_words(size_t index);
  void receive_rows(size_t index);
  // The next of a queue, or null at the end.
  WordRef next_of(std::deque<WordRef>& queue);
  // Waits until a word is sent, or nothing is any more.
  void wait_until_sent(const Word& word);
  void lose(Error error);
  Status say(LayerCopy copy);
  comm::Deadline within(double seconds) const;

  const LayerGroupOptions options_;
  std::vector<Holder> holders_;
  std::vector<std::unique_ptr<Link>> links_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> error_;
  std::atomic<bool> ending_{false};
  int64_t started_ = 0;   // pieces
  int64_t finished_ = 0;  // of them
};

}  // namespace jige::serve
