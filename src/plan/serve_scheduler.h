// Iteration-level scheduler of a language-model server: a pure state machine.
//
// Events in: a request arrives, a batch completes with its sampled tokens, a batch is lost, a
// request is cancelled, tokens that may follow a request's are drafted. Decision out: the next
// batch, one model iteration over some tokens of some requests. No thread, clock, device or random
// source is inside: the server and the simulator drive the same code, and a log of events replays
// to the same decisions.
//
// Policies (Yu et al., Orca, OSDI 2022; Agrawal et al., Sarathi-Serve, OSDI 2024):
//   orca     first come, first served at the level of iterations; a prompt runs whole
//   chunked  running requests' next tokens first, then pieces of prompts up to a token budget; or
//            whole prompts, where a model cannot run pieces (whole_prompt_tokens). Runs of tokens
//            that see one another (token_runs.h) are not cut: the piece that comes first among
//            those of prompts passes the budget where a run does, others wait until they do
//   static   request-level batching, the baseline: a batch runs until its last member is done
//   rounds   at most round_prompts whole prompts alone, then round_steps iterations of next tokens
//            alone, and again (Oh et al., ExeGPT, ASPLOS 2024: round-robin allocation). Those who
//            finish leave at once. A phase with nothing to do ends: while nobody waits, or nobody
//            fits, next tokens go on, and who comes then begins at once if round_steps iterations
//            have passed since the last prompts. At most batch_requests_max are inside, unless
//            they are forks or more urgent. With several batches in flight iterations are batches
// Tenants, among equals in priority: with fair_share the one served least goes first. With
// shortest_first it is the one with the fewest tokens unfinished, so that little work need not wait
// for much that came before; chunked then keeps half of every iteration for the request that came
// first, which is how much work comes to its end, whatever keeps coming.
// Admission:
//   reserve     a request enters when its worst case fits; it then always finishes
//   optimistic  a request enters when its prompt fits; under pressure the last in order of priority
//               and arrival gives its blocks back and is computed again later, at most
//               preemptions_max times
//
// Several batches in flight (batches_in_flight_max, Orca's n_workers; fewer where there are few
// requests): each takes at most its share of the next tokens of those inside, so that all have
// some. Prompts go wherever there is room. A next token waits for at most as many batches as are in
// flight, where the limits let one have its share.
//
// Drafts ride along with next tokens, in what a batch has room for: they take no place from prompts
// or next tokens, no block from a request and none beyond what admission foresaw. What was drafted
// wrongly leaves nothing behind: its blocks are free and nothing of it is published.
//
// States: recurrent layers keep one state of fixed size for a sequence instead of keys and values.
// With state_count every request inside has a slot for its own, and until its first token one for
// each of its forks: it enters when they are all free, so a fork never lacks one. What a slot holds
// at a request's first token is of no account. A state cannot be rewound, and no block holds it: so
// after a lost batch its requests, and those whose copies came with it, begin again as when they
// were admitted. The copies of a batch are made before it runs, and batches run in the order they
// are given out: so a slot may be given on before the copy of what it held is made.
//
// Drafts with states need a spare slot for each request, where the state is kept as it is before
// the drafted tokens: slots that nobody holds while the batch is in flight, so no request waits for
// one. Where a token was wrong the spare slot becomes the request's; those that were right are in
// the cache but not in that state, and run again in front of its next token. There are at most as
// many as were drafted, in rows that the batch before had, too. Tokens that are certain to come
// need no spare slot; should one not come, the request begins again. With several batches in flight
// nothing is drafted: what is free might be taken before a batch ends.
//
// Kept states: further slots, from state_count on, hold copies of states as they stood behind whole
// blocks of prompts, for prompts with the same beginning. A prompt is cut at the last border of
// blocks that lies kept_margin tokens before its end, since the next turn of a chat repeats all but
// its last tokens, which open the answer; and, where it finds blocks but no state of its beginning,
// at the end of those blocks, a beginning that others have too. When it goes on from there its
// state is copied. A request begins at the end of the longest prefix with all blocks in the cache
// and a kept state. Nothing is kept at the end of answers: they end at a border once in
// block_tokens times, and templates write answers in another way into later prompts, or leave out
// their reasoning. Nor is anything with several batches in flight: what is kept would be found
// before it is known not to be lost. Where nothing is kept no prefix is cached.
//
// Settings may change while requests are inside, at a border of the policy's cycle: with rounds
// where prompts may begin again, with static where no batch is inside, else between two batches.
// Whoever is inside goes on: while they are more than the new settings have at once, all of them
// have their places, and nobody enters.
//
// Invariants, checked by check_invariants():
//   (1) a request is in at most one batch in flight
//   (2) blocks: what requests hold is what the pool counts as live; with reserve, promised blocks
//       never exceed the capacity and acquiring never fails
//   (3) orca, equal priorities, no fair share: if x arrived before y, x has been scheduled at least
//       as often as y while both were unfinished (iteration-level first come, first served); but a
//       fork waits for the batch in flight that copies its state
//   (4) admitted requests form a prefix of the scan order when they were admitted: nobody is
//       admitted behind the first that does not fit, so nobody overtakes it for ever
//   (5) while requests exist and nothing is in flight, next_batch() gives a batch
//   (6) a slot is free or held once, by who is admitted; with states each who is admitted and
//       unfinished has one; spare ones are of those in flight; a kept slot is free or has one name
//   (7) nobody runs past a border at which its state is to be kept
//   (8) rounds: no batch has both prompts and next tokens; between two in which prompts begin lie
//       round_steps with next tokens, or nobody had one to run. So newcomers hold those inside up
//       by one iteration in round_steps + 1, or by three where borders cut their prompts. Settings
//       that have just come may open the door once more
//   (9) a batch has all tokens of a run (RequestSpec::whole_runs) that are not computed, or none
// Threads: none; one caller.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/kept_states.h"
#include "plan/kv_block_pool.h"
#include "plan/token_runs.h"

namespace jige::plan {

struct ServeSettings;  // serve_settings.h

using RequestId = int64_t;
using BatchId = int64_t;

enum class ServePolicy { kOrca, kChunked, kStatic, kRounds };
inline constexpr ServePolicy kServePolicies[] = {ServePolicy::kChunked, ServePolicy::kOrca,
                                                 ServePolicy::kStatic, ServePolicy::kRounds};
// "orca", "chunked", "static", "rounds".
std::string_view policy_name(ServePolicy policy);
std::optional<ServePolicy> find_policy(std::string_view name);

enum class Admission { kReserve, kOptimistic };

struct ServeSchedulerOptions {
  ServePolicy policy = ServePolicy::kChunked;
  Admission admission = Admission::kReserve;
  int32_t batch_requests_max = 64;
  int32_t batch_tokens_max = 512;      // of one iteration: chunked; drafts in every policy
  int32_t sample_rows_max = 64;        // with drafts: rows of one iteration that are sampled from
  int32_t round_prompts = 8;           // rounds: that begin together
  int32_t round_steps = 16;            // rounds: iterations of next tokens behind them
  int32_t batches_in_flight_max = 1;   // Orca's n_workers
  int32_t in_flight_requests_min = 1;  // for each batch; with fewer there are fewer batches
  int32_t preemptions_max = 3;         // of one request; then it is no victim any more
  bool fair_share = false;             // the tenant served least goes first
  bool shortest_first = false;         // the tenant with the least to do; not with fair_share
  int32_t whole_prompt_tokens = 0;     // prompts, of up to so many, run whole under chunked, too
  int32_t state_count = 0;             // of requests; 0: the model has no states
  int32_t kept_state_count = 0;        // beside them
  int32_t kept_margin = 16;            // tokens that the next turn of a chat may not repeat
  KvBlockPoolOptions pool;
};

// The adapter of requests that ask for none: the base itself.
inline constexpr int32_t kBaseAdapter = -1;
// The slot of requests to a model without states.
inline constexpr int32_t kNoState = -1;

struct RequestSpec {
  RequestId id = 0;
  std::vector<int32_t> prompt;     // at least one token
  int32_t max_new_tokens = 1;      // 0: none; it is finished with what its last token samples
  int32_t fork_count = 0;          // further samples of the same prompt that will be forked off
  int32_t priority = 0;            // larger goes first
  uint64_t tenant = 0;             // for fair share
  uint64_t cache_salt = 0;         // prompts match cached prefixes of the same salt only
  int32_t cached_max = INT32_MAX;  // tokens that may come from the prefix cache
  // Which of the model's adapters the request runs with: keys and values are of it, so that prompts
  // match cached prefixes of the same one only.
  int32_t adapter = kBaseAdapter;
  // Of the prompt, ascending: no batch has a part of one that was not computed before.
  std::vector<TokenRun> whole_runs = {};
};

// Tokens of one request in a batch: positions [context_count, context_count + tokens.size()).
struct WorkItem {
  RequestId request = 0;
  int32_t adapter = kBaseAdapter;
  int32_t context_count = 0;
  std::vector<int32_t> tokens;
  std::vector<BlockId> blocks;  // of all positions up to the last one here
  bool samples = false;         // the last token's logits give the request's next token
  int32_t draft_count = 0;      // of the tokens, the last ones; those before them sample too
  int32_t again_count = 0;      // of the tokens, the first ones: the cache has them, the state not
  int32_t state = kNoState;     // the slot; it holds the tokens before context_count, if any
  int32_t spare = kNoState;     // gets the state behind the tokens before the drafted ones
  std::vector<TokenRun> whole_runs = {};  // of the request, those that the tokens lie in
  int64_t sample_rows() const { return samples ? 1 + draft_count : 0; }
};

// To be copied before the batch runs: `dst` becomes a private copy of `src`.
struct BlockCopy {
  BlockId src = -1;
  BlockId dst = -1;
};

// Likewise, of slots, in this order: a fork's state begins as its parent's, then requests' as those
// that are kept, then more are kept. Each `dst` comes once, no `src` is the `dst` of one before,
// and who begins need not be in the batch.
struct StateCopy {
  int32_t src = kNoState;
  int32_t dst = kNoState;
};

struct Batch {
  BatchId id = 0;
  std::vector<WorkItem> items;
  std::vector<BlockCopy> copies;
  std::vector<StateCopy> state_copies;
  std::vector<RequestId> preempted;  // gave their blocks back to make this batch possible
  int64_t token_count() const;
};

// A further sample of the same prompt, begun when the prompt is done: a request of its own from
// then on, sharing the prompt's blocks until it writes.
struct ForkedNext {
  RequestId child = 0;
  int32_t token = 0;
  bool finished = false;
};

// The next token of a request whose item samples. `finished`: a stop was met or the request failed.
struct SampledNext {
  RequestId request = 0;
  int32_t token = 0;
  bool finished = false;
  int32_t accepted = 0;           // drafted tokens of the item that came true, in front of `token`
  std::vector<ForkedNext> forks;  // with the first token only, at most RequestSpec::fork_count
};

struct RequestCounters {
  int32_t cached_tokens = 0;  // prompt tokens found in the prefix cache at first admission
  int32_t preemptions = 0;
  int64_t iterations = 0;
};

class ServeScheduler {
 public:
  explicit ServeScheduler(ServeSchedulerOptions options);

  // Fails with kInvalidArgument on an empty prompt, a negative length or a known id, and with
  // kExhausted when the request could not run even alone, for want of blocks or states, naming both
  // sizes.
  Status arrive(RequestSpec spec);
  // What may follow the request's tokens, in place of what was drafted before; it is forgotten with
  // the next token. The first `certain_count` are certain to come. Ignored for unknown requests,
  // those in flight, and all with states where several batches may be in flight.
  void draft(RequestId request, std::span<const int32_t> tokens, int32_t certain_count = 0);
  // The next iteration, or nothing when none may start now.
  std::optional<Batch> next_batch();
  // Ends a batch; one entry for every item that samples. Returns the requests that are over and may
  // be answered; their blocks are free or cached.
  std::vector<RequestId> complete(BatchId batch, std::span<const SampledNext> sampled);
  // The batch's results are lost; its requests run those tokens again, with states all of theirs.
  // Returns those that are over because of it (static: who waited for one that was cancelled in
  // flight).
  std::vector<RequestId> lose(BatchId batch);
  // Blocks and states are lost, all of them: who is inside runs all of its tokens again, and nobody
  // finds what was cached. REQUIRES: nothing is in flight.
  void lose_caches();
  // Drops a request. One in flight leaves when its batch ends. Unknown ids are ignored. Returns the
  // requests that are over because of it (static: those that waited for this one).
  std::vector<RequestId> cancel(RequestId request);
  // What the request has computed, and will, cannot be trusted: nobody finds it in the prefix cache
  // any more. Unknown ids are ignored.
  void discard(RequestId request);
  // Other settings, from the next border on; of several that come before it the last. REQUIRES:
  // settings as positive as those of the constructor.
  void change(const ServeSettings& settings);

  // With the settings in force.
  const ServeSchedulerOptions& options() const { return options_; }
  // Requests of a batch: batch_requests_max, or as many as were inside when it was more.
  int32_t places() const { return places_; }
  int32_t waiting_count() const;  // not admitted
  int32_t running_count() const;  // admitted, unfinished
  int32_t in_flight_count() const { return static_cast<int32_t>(in_flight_.size()); }
  bool idle() const { return requests_.empty(); }
  const KvBlockPool& pool() const { return pool_; }
  const KeptStates& kept_states() const { return kept_; }
  // So many requests may have drafts that are not certain, if nobody is admitted before.
  int32_t spare_count() const;
  // Tokens that the request runs again in front of its next one; 0 for unknown ones.
  int32_t again_count(RequestId request) const;
  // Of a request that is not over yet.
  RequestCounters counters(RequestId request) const;
  void check_invariants() const;

 private:
  struct Request {
    RequestSpec spec;
    int64_t arrival = 0;
    std::vector<int32_t> tokens;   // prompt and generated
    int32_t computed = 0;          // tokens whose keys and values are in blocks
    int32_t in_flight_tokens = 0;  // > 0: in a batch
    std::vector<int32_t> draft;
    int32_t certain_drafts = 0;    // of the draft, the first ones
    int32_t in_flight_drafts = 0;  // of in_flight_tokens
    int32_t generated = 0;
    int32_t promised_blocks = 0;  // reserve
    bool admitted = false;
    bool finished = false;   // static: done, waits for its batch
    bool cancelled = false;  // in flight; leaves when the batch ends
    bool discarded = false;  // its blocks are not published
    std::vector<BlockId> blocks;
    std::vector<PrefixHash> prefix;  // prefix[i]: hash before block i
    int32_t state = kNoState;
    int32_t again = 0;                  // of those computed the last ones, which it does not hold
    int32_t spare = kNoState;           // in flight, with drafts
    std::vector<int32_t> fork_states;   // for its forks
    int32_t state_source = kNoState;    // the next batch is to copy this slot to `state`
    std::optional<BatchId> state_copy;  // the batch in flight that does
    std::vector<int32_t> borders;       // tokens behind which its state is to be kept, ascending
    RequestCounters counters;
  };
  // Where a request stands: the larger priority first, then the tenant whose turn it is, then
  // whoever came first.
  struct Rank {
    int64_t behind = 0;         // minus its priority
    int64_t tenant_tokens = 0;  // served or unfinished, as tenants are ordered
    int64_t arrival = 0;
    auto operator<=>(const Rank&) const = default;
  };
  using Queue = std::map<Rank, Request*>;
  class ScanOrder;

  struct InFlight {
    std::vector<RequestId> members;
    std::vector<PrefixHash> kept;  // states that are kept with its copies
  };
  struct Tenant {
    int64_t served_tokens = 0;
    int64_t unfinished_tokens = 0;  // of the prompts of its requests
    int32_t request_count = 0;
  };

  void change_at_border();
  // Of an iteration, chunked.
  int32_t token_budget() const;
  void insert(Request request);
  void fork(Request& parent, const ForkedNext& next);
  // Of the queue that the request waits in, and in it, where all of a queue are served alike.
  uint64_t queue_name(const Request& request) const;
  static Rank rank_in_queue(const Request& request);
  int64_t tenant_tokens(uint64_t tenant) const;
  void wait(Request& request);
  void enter(Request& request);
  void leave_queue(const Request& request);
  void select_by_iteration(Batch& batch);
  void select_chunked(Batch& batch);
  // Tokens of a piece of the request's prompt in a budget, or more of the first in a batch.
  static int32_t piece_of(const Request& request, int32_t budget, bool first_in_batch);
  Request* first_arrived();
  void select_static(Batch& batch);
  void select_rounds(Batch& batch);
  void select_phase(Batch& batch);
  void select_prompts(Batch& batch, bool door_open);
  void select_next_tokens(Batch& batch);
  void add_drafts(Batch& batch);
  void add_draft(Request& request, int64_t room, WorkItem& item);
  // States.
  int32_t states_for(const Request& request) const;
  void take_states(Request& request);
  void give_back_fork_states(Request& request);
  bool drafts_states() const;
  void take_spare(Request& request, WorkItem& item);
  void give_back_spare(Request& request);
  bool end_drafts(Request& request, int32_t accepted);
  void add_state_copies(Batch& batch);
  void end_state_copies(BatchId batch, bool lost);
  // Kept states.
  static bool keeps_states(const ServeSchedulerOptions& options);
  void begin_at_kept_state(Request& request);
  static int32_t up_to_border(const Request& request, int32_t token_count);
  void keep_states(Batch& batch);
  void begin_again(Request& request);
  void check_kept_states() const;
  // Whether it is in a batch in flight, or its state is to come from one.
  static bool in_flight(const Request& request);
  static int32_t remaining(const Request& request);
  static bool has_prompt_left(const Request& request);
  // Its next token alone, in this batch or another.
  static bool runs_next_token(const Request& request);
  // That may be in flight, by how many requests there are.
  int32_t batches_allowed() const;
  int32_t next_token_share() const;
  bool admit(Request& request);
  // Tokens that the request runs in the batch, at most as many as given; 0: there is no room.
  int32_t schedule(Request& request, int32_t token_count, Batch& batch);
  bool make_room(Request& request, int32_t end, Batch& batch);
  bool take_block(Request& request, Batch& batch, BlockId& block);
  bool preempt_behind(const Request& request, Batch& batch);
  bool spared(const Request& request) const;
  void match_prefix(Request& request);
  void publish_full_blocks(Request& request);
  std::vector<RequestId> release_finished();
  void give_back(Request& request);  // blocks and states
  void give_back_blocks(Request& request);
  void give_back_blocks_behind(Request& request, int32_t token_count);
  void remove(RequestId id);
  void check_states() const;
  int32_t blocks_for(int64_t token_count) const;
  int32_t worst_case_blocks(const RequestSpec& spec) const;
  Request& at(RequestId id);

  ServeSchedulerOptions options_;
  std::optional<ServeSchedulerOptions> changed_;  // from the next border on
  int32_t places_;
  KvBlockPool pool_;
  KeptStates kept_;
  // Each request is among those inside, which are admitted, or waits; while a batch is chosen, its
  // victims are in neither. What an iteration costs grows with those inside, not with the queue.
  std::map<RequestId, Request> requests_;
  std::map<RequestId, Request*> inside_;
  std::map<uint64_t, Queue> waiting_;  // by tenant where those are ordered, else one queue
  std::map<BatchId, InFlight> in_flight_;
  std::map<uint64_t, Tenant> tenants_;  // those with requests
  int32_t promised_blocks_ = 0;
  int32_t round_steps_left_ = 0;  // until prompts may begin
  std::vector<int32_t> free_states_;
  int64_t next_arrival_ = 0;
  BatchId next_batch_ = 1;
};

}  // namespace jige::plan
