#include "api/route_server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/load_report.h"

namespace jige::api {
namespace {

constexpr size_t kProbeBytesMax = size_t{4} << 20;
constexpr const char* kStepPaths[] = {"/health", "/v1/models", "/metrics"};

}  // namespace

std::vector<std::string> RouteServer::model_names() const {
  std::vector<std::string> names;
  for (const Json& model : models_) names.push_back(model["id"].get<std::string>());
  return names;
}

void RouteServer::set_address(const HostAddress& address) {
  peer_.address = address;
  idle.clear();
  drop_probe_wire();
}

bool RouteServer::begin_probe(double now_s, double answer_s, int64_t own) {
  answer_s_ = answer_s;
  health_.probe_sent();
  load.asked(own);
  return start_step(Step::kHealth, now_s);
}

int RouteServer::probe_fd() const {
  return probe_ ? probe_->fd() : probe_wire_ ? probe_wire_->fd() : -1;
}

bool RouteServer::start_step(Step step, double now_s) {
  step_ = step;
  probe_until_s_ = now_s + answer_s_;
  end_call();
  if (now_s - probe_wire_opened_s_ >= kProbeWireSeconds) drop_probe_wire();
  const Status called = call_step(std::exchange(probe_wire_, std::nullopt), now_s);
  if (called) return true;
  if (step == Step::kLoad) {
    end_load(now_s, /*answered=*/false);
  } else {
    end_probe(now_s, called.error().message);
  }
  return false;
}

Status RouteServer::call_step(std::optional<HttpWire> wire, double now_s) {
  const HttpQuery query{.path = kStepPaths[static_cast<size_t>(step_)],
                        .keep_connection = keeps_probe_wire_};
  if (wire) {
    probe_.emplace(HttpCall::start_on(std::move(*wire), peer_, query));
  } else {
    probe_.reset();
    ++counts.opened_probes;
    probe_wire_opened_s_ = now_s;
    JIGE_TRY(HttpCall call, HttpCall::start(peer_, query));
    probe_.emplace(std::move(call));
  }
  probe_->hold_body_at(kProbeBytesMax);
  return {};
}

void RouteServer::end_call() {
  if (!probe_) return;
  if (keeps_probe_wire_) probe_wire_ = probe_->take_wire();
  probe_.reset();
}

void RouteServer::end_probe(double now_s, std::string trouble) {
  end_call();
  health_.probe_answered(now_s, trouble.empty());
  const bool still = trouble.empty() && health_.silent(now_s);
  if (!still) trouble_ = std::move(trouble);
}

// A server that does not tell is well for all that.
void RouteServer::end_load(double now_s, bool answered) {
  std::optional<plan::LoadReport> report;
  if (answered && probe_->response().status() == 200) {
    report = read_load_report(probe_->response().take_body());
  }
  end_call();
  if (report) {
    load.told(now_s, *report);
  } else {
    load.not_told(now_s);
  }
}

bool RouteServer::move_probe(double now_s) {
  if (!probe_) {
    if (probe_wire_ && !probe_wire_->quiet()) {
      drop_probe_wire();
      health_.doubted();
    }
    return false;
  }
  Status moved = probe_->advance();
  if (!moved && probe_->ended_unused()) {
    moved = call_step(std::nullopt, now_s);
    if (moved) return true;
  }
  const bool complete = moved && probe_->response().complete();
  if (moved && !complete && now_s < probe_until_s_) return false;
  if (step_ == Step::kLoad) {
    end_load(now_s, complete);
    return true;
  }
  std::string trouble = !moved     ? moved.error().message
                        : complete ? look_at_answer()
                                   : fmt::format("no answer to GET {} within {:g} s",
                                                 kStepPaths[static_cast<size_t>(step_)], answer_s_);
  if (trouble.empty() && step_ == Step::kHealth) {
    start_step(Step::kModels, now_s);
    return true;
  }
  const bool well = trouble.empty();
  end_probe(now_s, std::move(trouble));
  if (well && load.due(now_s)) start_step(Step::kLoad, now_s);
  return true;
}

std::string RouteServer::look_at_answer() {
  ResponseReader& response = probe_->response();
  const int status = response.status();
  if (step_ == Step::kHealth) {
    return status == 200 ? "" : fmt::format("GET /health: HTTP {}", status);
  }
  if (status != 200) {
    return fmt::format("GET /v1/models: HTTP {}{}", status,
                       status == 401 ? "; --server-key-file names its key" : "");
  }
  const Result<Json> body = parse_json(response.take_body(), address() + "/v1/models");
  if (!body) return body.error().message;
  const Json* data = find_field(*body, "data");
  if (!data || !data->is_array()) return "GET /v1/models: there is no list in \"data\"";
  Json models = Json::array();
  for (const Json& model : *data) {
    const Json* id = find_field(model, "id");
    if (id && id->is_string()) models.push_back(model);
  }
  if (models.empty()) return "it has no model yet";
  models_ = std::move(models);
  return "";
}

}  // namespace jige::api
