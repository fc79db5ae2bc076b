// jige top: what a server is doing, as it does it.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "api/api_keys.h"
#include "api/http_client.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/route_frame.h"
#include "cli/server_list.h"
#include "cli/top_frame.h"

namespace jige::cli {
namespace {

constexpr double kFetchSeconds = 5;

class TopCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Shows what a `jige serve` is doing: requests in prefill, in decode and waiting, the "
        "key/value cache, tokens a second, latencies; of a `jige route` its servers. Redraws until "
        "Ctrl-C. Where the server asks "
        "for a key, the environment variable JIGE_API_KEY holds it.");
    flags.text("URL", url_, "the server, such as http://127.0.0.1:8000");
    flags.text("--server-ca FILE", server_ca_, kServerCaHelp);
    flags.toggle("--once", once_, "one picture, then end");
    flags.number("--seconds S", seconds_, {.min = 0.05, .max = 3600}, "between pictures");
    output_.declare(flags, "one JSON line a picture");
    flags.example("jige top http://127.0.0.1:8000");
    flags.example("jige top http://127.0.0.1:8000 --once --json");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(api::HttpPeer peer, resolve_server({url_, "URL"}, server_ca_));
    peer.api_key = api::client_key();
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    std::optional<TopSample> before;
    do {
      JIGE_TRY(TopSample now, take_sample(peer));
      if (output_.json) {
        print_json(sample_json(now, before ? &*before : nullptr));
      } else {
        const std::string frame = is_router(now.top)
                                      ? render_router(now.top, view(peer))
                                      : render_top(now, before ? &*before : nullptr, view(peer));
        if (terminal && !once_) print_exact(kHomeAndClear);
        print_text(frame);
      }
      before = std::move(now);
      if (!once_) pause();
    } while (!once_ && !interrupted());
    return {};
  }

 private:
  Result<std::string> get(const api::HttpPeer& peer, const std::string& path) const {
    JIGE_TRY(api::HttpAnswer answer, api::fetch(peer, {.path = path}, kFetchSeconds));
    if (answer.status == 200) return std::move(answer.body);
    return fail(Code::kUnavailable, "{}{}: HTTP {}{}", peer.host, path, answer.status,
                answer.status == 401   ? "; JIGE_API_KEY must hold a key"
                : answer.status == 404 ? "; is it a server of Jige?"
                                       : "");
  }

  Result<TopSample> take_sample(const api::HttpPeer& peer) const {
    JIGE_TRY(const std::string body, get(peer, "/top"));
    JIGE_TRY(Json top, parse_json(body, peer.host + "/top"));
    JIGE_TRY(std::string metrics, get(peer, "/metrics"));
    return TopSample{
        .top = std::move(top), .metrics = std::move(metrics), .at_s = watch_.seconds()};
  }

  static Json sample_json(const TopSample& now, const TopSample* before) {
    const auto or_null = [](const std::optional<double>& value) {
      return value ? Json(*value) : Json(nullptr);
    };
    return {{"top", now.top},
            {"prefix_hit_share", or_null(prefix_hit_share(now))},
            {"answer_tokens_per_second", or_null(answer_tokens_per_s(now, before))}};
  }

  static TopView view(const api::HttpPeer& peer) {
    TopView view{.address = peer.host};
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      view.columns_max = size.ws_col;
      view.rows_max = size.ws_row;
    } else {
      view.columns_max = 1000;  // a file or a pipe
      view.rows_max = 1000;
    }
    return view;
  }

  void pause() const {
    const StopWatch watch;
    while (watch.seconds() < seconds_ && !interrupted()) std::this_thread::sleep_for(kSignalPoll);
  }

  std::string url_, server_ca_;
  bool once_ = false;
  double seconds_ = 1;
  OutputFlags output_;
  StopWatch watch_;
};

}  // namespace

std::unique_ptr<Command> make_top_command() { return std::make_unique<TopCommand>(); }

}  // namespace jige::cli
