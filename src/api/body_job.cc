#include "api/body_job.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/completion_request.h"
#include "api/route_table.h"

namespace jige::api {

ApiError draining_error() {
  return {.status = 503,
          .message = "the server is shutting down",
          .code = "draining",
          .retry_after_s = 5};
}

void read_body(WorkQueue& work, HttpRequest request, const std::shared_ptr<Responder>& respond,
               BodyJob job) {
  if (has_coded_body(request)) return respond->respond(coded_body_response(request));
  const ErrorForm form = error_form(request.path);
  const size_t bytes = request.body.size();
  std::function<void()> run = [respond, form, job = std::move(job),
                               asked = std::make_shared<HttpRequest>(std::move(request))] {
    const bool draining = job.draining && job.draining->load();
    const ApiResult<Json> body =
        draining ? tl::unexpected(draining_error()) : parse_body(asked->body);
    if (body) return job.on_body(asked, *body, respond);
    respond->post(
        [respond, form, error = body.error()] { respond->respond(error_response(error, form)); });
  };
  if (work.try_push(run, bytes)) return;
  respond->respond(error_response({.status = 429,
                                   .message = "too many requests wait to be read; try again",
                                   .code = "queue_full",
                                   .retry_after_s = 1},
                                  form));
}

}  // namespace jige::api
