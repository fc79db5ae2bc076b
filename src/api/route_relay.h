// RouteRelay: one request on its way through a router: what is to be asked, the call to a server,
// and what of the answer goes on to the client. Internal to the router.
//
// An answer is whole (a body of up to kWholeBytes) or goes on in pieces as it comes. Of server-sent
// events only whole ones go on, so that an error can be said behind them in the form of the
// protocol; one of more than kEventBytes goes on in pieces, and then a stream that breaks is cut.
// Until the first bytes of an answer go on the request may be asked elsewhere. The client's end is
// begun with them; that of a stream earlier, where they are long in coming, so that the client and
// proxies in front of it see that it is not forgotten: by a head and comments of the router's own
// (say_it_goes_on). Those of the server, which may not be the last that is asked, do not go on.
//
// Invariants: (1) at most kWindowBytes and a read are on the way to a client that has not taken
//             them: behind that nothing is read from the server until it has.
//             (2) nothing is asked twice of whose answer the client has seen a byte.
// Threads: the router's own; what the Responder does runs on the HTTP server's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "api/http_client.h"
#include "api/http_message.h"
#include "base/result.h"
#include "plan/route_policy.h"

namespace jige::api {

class RouteRelay {
 public:
  static constexpr size_t kWholeBytes = size_t{1} << 20;
  static constexpr size_t kEventBytes = size_t{256} << 10;
  static constexpr size_t kWindowBytes = size_t{64} << 10;

  // What became of the bytes that have come.
  enum class State {
    kOpen,     // more is to come
    kRefused,  // by 429 or 503: the answer is kept, and nobody has seen it
    kDone,     // the client has the whole answer
  };

  RouteRelay(plan::RouteId id, HttpRequest request, std::shared_ptr<Responder> responder);

  plan::RouteId id() const { return id_; }
  const std::string& path() const { return path_; }
  // What client and servers call it (HttpRequest::id).
  const std::string& name() const { return name_; }

  // Begins to ask a server, on a connection that another request has left or a new one. Fails as
  // HttpCall does.
  Status ask(const HttpPeer& peer, std::optional<HttpWire> wire, double now_s);
  // Gives the call up, and all that has come of it.
  void drop_call();
  HttpCall* call() { return call_ ? &*call_ : nullptr; }
  // Sends and receives what is possible. Fails as HttpCall does. `on_taken` runs, on any thread,
  // once the client has taken all that is on the way to it; until then paused() is true.
  Result<State> move(double now_s, std::function<void()> on_taken);
  bool paused() const { return paused_; }
  void go_on(double now_s) {
    paused_ = false;
    moved_s_ = now_s;  // till now it was not the server that was waited for
  }

  // Whether the client has seen something of an answer.
  bool begun() const { return begun_; }
  bool has_first_bytes() const { return first_s_ >= 0; }
  bool ever_paused() const { return ever_paused_; }
  // Of the call at hand: when it began, and from then to the head of its answer, of a stream to the
  // first bytes that went on.
  double asked_at_s() const { return asked_s_; }
  double first_byte_seconds() const { return first_s_ - asked_s_; }
  double last_moved_s() const { return moved_s_; }
  // Tokens of the answer so far, about: events of a stream; what the usage of a whole answer says.
  int64_t answer_tokens() const { return answer_tokens_; }
  // How long a server that refused wants nothing; negative: it does not say.
  double retry_after_s() const { return retry_after_s_; }

  // Whether the client of a stream that has not begun has heard nothing for so long.
  bool silent_for(double seconds, double now_s) const;
  // Tells it that its request is not forgotten.
  void say_it_goes_on(double now_s);

  // Answers with the refusal that was kept, of several that which wants the shortest wait, or else
  // with this error.
  void refuse(const ApiError& error);
  // Ends an answer that the client has seen something of: by an error in the form of the protocol
  // where that is possible, else the connection is cut.
  void cut(const ApiError& error);

  // What the router keeps of it.
  double came_s = 0;
  plan::RouteServerId server = -1;  // that was asked last
  int32_t broken_count = 0;         // servers that were lost with it, or did not answer it
  bool unanswered = false;          // of these, the last one did not answer
  bool is_trial = false;            // of that server, which has rested
  bool asked_afresh = false;        // that server, as a connection left by another had ended
  size_t counted_bytes = 0;         // of its body, while it may be asked again
  int64_t prompt_tokens = 0;
  int64_t sequences = 1;
  bool stream = false;
  std::string model;

 private:
  enum class Form { kUnknown, kRefusal, kWhole, kEvents, kBytes };

  void look_at_head(double now_s);
  Result<State> pass_on(std::function<void()> on_taken);
  State finish_whole();
  void send(std::string_view piece, std::function<void()> on_taken);
  HttpResponse take_head() const;
  // An event, and the end of the stream.
  void say_last(std::string event);

  plan::RouteId id_;
  std::string path_;
  std::string name_;
  HttpQuery query_;
  std::shared_ptr<Responder> responder_;
  std::optional<HttpCall> call_;

  Form form_ = Form::kUnknown;
  std::string held_;  // of the body: what does not go on yet
  bool whole_events_ = true;
  bool opened_ = false;  // the client has a head
  bool begun_ = false;
  bool paused_ = false;
  bool ever_paused_ = false;
  size_t on_the_way_ = 0;  // bytes since the client had taken all
  int64_t answer_tokens_ = 0;
  double asked_s_ = 0, first_s_ = -1, moved_s_ = 0;
  double said_s_ = 0;  // when the client was told last that it goes on
  double retry_after_s_ = -1;
  double refusal_retry_s_ = -1;  // of refusal_
  std::optional<HttpResponse> refusal_;
};

}  // namespace jige::api
