#include "profile/mpi/mpi_rank.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "profile/link_agent.h"
#include "profile/local_places.h"
#include "profile/mpi/frame_pipe.h"

namespace jige::profile {
namespace {

// Between rank 0 and the others; flows have higher ones.
constexpr int kOrderTag = 1, kReadyTag = 2, kGoTag = 3, kResultTag = 4, kQuitTag = 5, kFactsTag = 6;
constexpr auto kNap = std::chrono::microseconds(300);  // between looks for an order
constexpr double kGraceSeconds = 1;                    // for ranks that gave up to say why

void nap() { std::this_thread::sleep_for(kNap); }

void send_text(int to, int tag, const std::string& text) {
  MPI_Send(text.data(), static_cast<int>(text.size()), MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

// What has come from a rank, if anything has; any: MPI_ANY_SOURCE, MPI_ANY_TAG.
struct Letter {
  int from = 0, tag = 0;
  std::string text;
};
std::optional<Letter> next_letter(int from, int tag) {
  int there = 0;
  MPI_Status status;
  MPI_Iprobe(from, tag, MPI_COMM_WORLD, &there, &status);
  if (there == 0) return std::nullopt;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Letter letter{status.MPI_SOURCE, status.MPI_TAG, std::string(static_cast<size_t>(bytes), '\0')};
  MPI_Recv(letter.text.data(), bytes, MPI_BYTE, letter.from, letter.tag, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  return letter;
}

std::string payload_of(const AgentMessage& message) {
  return frame_of(message).substr(kFrameHeadBytes);
}

ErrorMessage error_of(const Error& error) { return {error.code, error.message}; }

class Rank {
 public:
  Rank(const MpiRankOptions& options, std::vector<MpiSeat> seats, int rank)
      : seats_(std::move(seats)),
        rank_(rank),
        size_(static_cast<int>(seats_.size())),
        streams_(options, rank, size_) {}

  Status pin() const {
    const MpiSeat& seat = seats_[static_cast<size_t>(rank_)];
    if (seat.processors.empty()) return {};
    return pin_to({.name = seat.name, .processors = seat.processors});
  }

  // Of ranks other than 0. Until rank 0 has no more orders.
  Status obey() {
    send_text(0, kFactsTag, payload_of(own_facts()));
    for (;;) {
      const std::optional<Letter> letter = next_letter(0, MPI_ANY_TAG);
      if (!letter) {
        nap();
      } else if (letter->tag == kQuitTag) {
        return {};
      } else if (letter->tag == kOrderTag) {
        JIGE_TRY(const AgentMessage order, parse_message(letter->text));
        const auto* run = std::get_if<RunMessage>(&order);
        if (run) send_text(0, kResultTag, payload_of(take_part(*run)));
      }
    }
  }

  // Of rank 0. Until the profiler is gone.
  Status lead(FramePipe& profiler) {
    JIGE_TRY(const RanksMessage ranks, gather_facts());
    JIGE_DO(profiler.send(ranks));
    for (;;) {
      JIGE_TRY(const std::optional<AgentMessage> message, profiler.receive());
      if (!message) break;
      const auto* run = std::get_if<RunMessage>(&*message);
      if (!run) return fail(Code::kUnsupported, "not asked for like that");
      JIGE_TRY(RanMessage ran, run_all(*run));
      JIGE_DO(profiler.send(ran));
    }
    for (int other = 1; other < size_; ++other) send_text(other, kQuitTag, "");
    return {};
  }

 private:
  static RanksMessage own_facts() {
    char host[MPI_MAX_PROCESSOR_NAME] = {}, library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_processor_name(host, &length);
    MPI_Get_library_version(library, &length);
    // "Open MPI v4.1.4, package: …"
    const std::string version = std::string(library).substr(0, std::strcspn(library, ",\n"));
    return {version, {host}, {kernel_release()}, {getpid()}};
  }

  std::string name(int rank) const {
    return fmt::format("rank {} ({})", rank, seats_[static_cast<size_t>(rank)].name);
  }

  Result<RanksMessage> gather_facts() const {
    RanksMessage all = own_facts();
    for (int other = 1; other < size_; ++other) {
      std::optional<Letter> letter;
      while (!(letter = next_letter(other, kFactsTag))) nap();
      JIGE_TRY(const AgentMessage message, parse_message(letter->text));
      const auto* facts = std::get_if<RanksMessage>(&message);
      if (!facts || facts->hosts.size() != 1) return fail(Code::kCorrupt, "{}", name(other));
      if (facts->library != all.library) {
        return fail(Code::kUnsupported, "{} has {}, {} has {}; use one release of MPI", name(0),
                    all.library, name(other), facts->library);
      }
      all.hosts.push_back(facts->hosts[0]);
      all.kernels.push_back(facts->kernels[0]);
      all.processes.push_back(facts->processes[0]);
    }
    return all;
  }

  static comm::Deadline deadline_of(const RunMessage& order) {
    return comm::Deadline::after(static_cast<double>(order.timeout_ms) / 1e3);
  }

  // What a rank does in a run, the meeting with rank 0 included.
  AgentMessage take_part(const RunMessage& order) {
    const comm::Deadline deadline = deadline_of(order);
    auto streams = streams_.of(order);
    if (!streams) return error_of(streams.error());
    if (rank_ != 0) {
      send_text(0, kReadyTag, "");
      while (!next_letter(0, kGoTag)) {
        if (deadline.passed()) {
          return ErrorMessage{Code::kUnavailable, name(0) + " lets nobody start"};
        }
        std::this_thread::yield();
      }
    }
    if (const Status moved = streams_.move(*streams, comm::monotonic_ns(), deadline); !moved) {
      // MPI may still write to their memory, until all ranks end.
      abandoned_ = std::move(*streams);
      return ErrorMessage{moved.error().code, name(rank_) + ": " + moved.error().message};
    }
    RanMessage ran;
    for (const MpiStream& stream : *streams) ran.times.push_back(stream.times);
    return ran;
  }

  std::vector<int> ranks_of(const RunMessage& order) const {
    std::vector<int> ranks;
    for (const int64_t flow : order.flows) {
      for (const int64_t end : {flow / size_, flow % size_}) {
        const int rank = static_cast<int>(std::min<int64_t>(end, size_ - 1));
        if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
      }
    }
    return ranks;
  }

  // One letter of each, or the rank that sends none.
  Result<std::map<int, std::string>> letters_of(const std::vector<int>& ranks, int tag,
                                                comm::Deadline deadline) const {
    std::map<int, std::string> letters;
    while (letters.size() < ranks.size()) {
      for (const int rank : ranks) {
        if (letters.contains(rank)) continue;
        std::optional<Letter> letter = next_letter(rank, tag);
        if (letter) letters[rank] = std::move(letter->text);
      }
      if (letters.size() == ranks.size()) break;
      if (deadline.passed()) {
        const auto missing =
            std::ranges::find_if(ranks, [&](int rank) { return !letters.contains(rank); });
        return fail(Code::kUnavailable, "no answer from {}", name(*missing));
      }
      nap();
    }
    return letters;
  }

  Result<RanMessage> run_all(const RunMessage& order) {
    if (auto own = streams_.of(order); !own) return tl::unexpected<Error>(std::move(own.error()));
    const comm::Deadline deadline = deadline_of(order);
    std::vector<int> others = ranks_of(order);
    const bool here = std::erase(others, 0) > 0;
    for (const int other : others) send_text(other, kOrderTag, payload_of(order));
    JIGE_DO(letters_of(others, kReadyTag, deadline));
    for (const int other : others) send_text(other, kGoTag, "");
    std::map<int, AgentMessage> said;
    if (here) said.emplace(0, take_part(order));
    const comm::Deadline latest =
        comm::Deadline::at_ns(deadline.ns() + static_cast<int64_t>(kGraceSeconds * 1e9));
    JIGE_TRY(const auto letters, letters_of(others, kResultTag, latest));
    for (const auto& [rank, text] : letters) {
      JIGE_TRY(AgentMessage message, parse_message(text));
      said.emplace(rank, std::move(message));
    }
    return merged(order, said);
  }

  // The sender knows the start of a flow, the receiver its end.
  Result<RanMessage> merged(const RunMessage& order,
                            const std::map<int, AgentMessage>& said) const {
    const ErrorMessage* worst = nullptr;  // wrong data explain a silence, not the other way round
    for (const auto& [rank, message] : said) {
      const auto* error = std::get_if<ErrorMessage>(&message);
      if (error && (!worst || error->code == Code::kCorrupt)) worst = error;
    }
    if (worst) return tl::unexpected<Error>(Error{worst->code, worst->message});
    RanMessage all;
    std::map<int64_t, size_t> next;  // of each rank's own flows
    for (const int64_t flow : order.flows) {
      FlowTimes& times = all.times.emplace_back();
      for (const int64_t end : {flow / size_, flow % size_}) {
        const auto* ran = std::get_if<RanMessage>(&said.at(static_cast<int>(end)));
        const size_t index = next[end]++;
        if (!ran || index >= ran->times.size()) {
          return fail(Code::kCorrupt, "{} tells too few times", name(static_cast<int>(end)));
        }
        (end == flow / size_ ? times.begin_ns : times.end_ns) =
            end == flow / size_ ? ran->times[index].begin_ns : ran->times[index].end_ns;
      }
    }
    return all;
  }

  std::vector<MpiSeat> seats_;
  int rank_, size_;
  MpiStreams streams_;
  std::vector<MpiStream> abandoned_;  // of the run that failed
};

Result<std::vector<MpiSeat>> seats_of(int argc, char** argv, int size) {
  std::vector<MpiSeat> seats;
  for (int i = 1; i < argc; ++i) {
    JIGE_TRY(MpiSeat seat, parse_mpi_seat(argv[i]));
    seats.push_back(std::move(seat));
  }
  if (static_cast<int>(seats.size()) == size) return seats;
  return fail(Code::kInvalidArgument, "{} ranks were started for {} places", size, seats.size());
}

}  // namespace

Result<MpiSeat> parse_mpi_seat(const std::string& text) {
  MpiSeat seat;
  const size_t colon = text.find(':');
  seat.name = text.substr(0, colon);
  std::string_view rest =
      colon == std::string::npos ? "" : std::string_view(text).substr(colon + 1);
  while (!rest.empty()) {
    int processor = -1;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), processor);
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
    const bool goes_on = rest.size() > 1 && rest[0] == ',';
    if (error != std::errc() || processor < 0 || (!rest.empty() && !goes_on)) {
      return fail(Code::kInvalidArgument, "\"{}\" is no NAME:PROCESSOR,…", text);
    }
    seat.processors.push_back(processor);
    if (goes_on) rest.remove_prefix(1);
  }
  if (seat.name.empty() || colon == std::string::npos) {
    return fail(Code::kInvalidArgument, "\"{}\" is no NAME:PROCESSOR,…", text);
  }
  return seat;
}

int mpi_rank_main(int argc, char** argv, const MpiRankOptions& options) {
  FramePipe profiler = FramePipe::standard();  // before MPI says anything on it
  MPI_Init(&argc, &argv);
  int number = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto serve = [&]() -> Status {
    JIGE_TRY(std::vector<MpiSeat> seats, seats_of(argc, argv, size));
    Rank rank(options, std::move(seats), number);
    JIGE_DO(rank.pin());
    return number == 0 ? rank.lead(profiler) : rank.obey();
  };
  const Status served = serve();
  if (served) return MPI_Finalize();
  if (number == 0) {
    (void)profiler.send(error_of(served.error()));
  } else {
    const std::string line = served.error().message + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
  }
  // The profiler ends all of it; this says so to who started it otherwise.
  std::this_thread::sleep_for(std::chrono::milliseconds(number == 0 ? 500 : 0));
  return MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace jige::profile
