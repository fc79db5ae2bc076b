// The routes of Service that load and unload adapters.
#include <nlohmann/json.hpp>

#include "api/adapter_loader.h"
#include "api/field_reader.h"
#include "api/service.h"
#include "base/log.h"
#include "base/printable.h"

namespace jige::api {
namespace {

constexpr size_t kPathBytesMax = 4096;

void post_error(const std::shared_ptr<Responder>& respond, ApiError error) {
  respond->post([respond, error = std::move(error)] { respond->respond(error_response(error)); });
}

void post_text(const std::shared_ptr<Responder>& respond, std::string text) {
  respond->post([respond, text = std::move(text)] {
    respond->respond({.content_type = "text/plain; charset=utf-8", .body = text});
  });
}

std::string read_adapter_name(FieldReader& fields) {
  const std::string name = fields.text("lora_name", kAdapterNameBytesMax).value_or("");
  if (!is_adapter_name(name)) {
    fields.refuse(bad_field("lora_name", "lora_name must have 1 to {} bytes of printable text",
                            kAdapterNameBytesMax));
  }
  return name;
}

ApiError name_taken(const std::string& name) {
  ApiError error =
      bad_field("lora_name",
                "lora_name: \"{}\" is served already; unload it first, or give another name", name);
  error.code = "adapter_exists";
  return error;
}

// Where adapters do not come and go, the routes are not there.
std::optional<ApiError> not_enabled(const ServedModel& model) {
  if (model.loader) return std::nullopt;
  return ApiError{.status = 404,
                  .message =
                      "adapters are not loaded while this server runs; --adapter-root "
                      "names a folder from which they may be",
                  .code = "adapters_not_enabled"};
}

void load_one(const ServedModel& model, const std::string& name, const std::string& path,
              const std::shared_ptr<Responder>& respond) {
  if (model.find(name)) return post_error(respond, name_taken(name));
  auto adapter = model.loader->load(name, path);
  if (!adapter) return post_error(respond, std::move(adapter.error()));
  const std::string root = adapter->root;
  if (!model.adapters->add(std::move(*adapter))) return post_error(respond, name_taken(name));
  log_info("adapter {} loaded from {}", printable(name), printable(root));
  post_text(respond, fmt::format("the adapter \"{}\" is loaded", name));
}

}  // namespace

void Service::load_adapter(HttpRequest request, const Respond& respond) {
  with_body(std::move(request), respond, [this](const Json& body, const Respond& to) {
    if (auto error = not_enabled(*model_)) return post_error(to, std::move(*error));
    FieldReader fields(body);
    const std::string name = read_adapter_name(fields);
    const std::string path = fields.text("lora_path", kPathBytesMax).value_or("");
    if (path.empty() || path.find('\0') != std::string::npos) {
      fields.refuse(bad_field("lora_path", "lora_path must name a folder with an adapter"));
    }
    if (fields.boolean("load_inplace").value_or(false)) {
      fields.refuse(unsupported_field("load_inplace", "replacing an adapter under its name is"));
    }
    if (fields.error()) return post_error(to, *fields.error());
    std::function<void()> job = [this, name, path, to] { load_one(*model_, name, path, to); };
    if (loading_.try_push(job, 0)) return;
    post_error(to, {.status = 429,
                    .message = "too many adapters wait to be loaded; try again",
                    .code = "queue_full",
                    .retry_after_s = 1});
  });
}

void Service::unload_adapter(HttpRequest request, const Respond& respond) {
  with_body(std::move(request), respond, [this](const Json& body, const Respond& to) {
    if (auto error = not_enabled(*model_)) return post_error(to, std::move(*error));
    FieldReader fields(body);
    const std::string name = read_adapter_name(fields);
    if (fields.error()) return post_error(to, *fields.error());
    const auto when_gone = [engine = model_->engine, name, to](int32_t number) {
      engine->forget_adapter(number);
      log_info("adapter {} unloaded", printable(name));
      post_text(to, fmt::format("the adapter \"{}\" is unloaded", name));
    };
    switch (model_->adapters->remove(name, when_gone)) {
      case ServedAdapters::Removal::kLeaves:
        return;
      case ServedAdapters::Removal::kStays:
        return post_error(
            to,
            bad_field("lora_name", "lora_name: \"{}\" was given with --adapter, and stays", name));
      case ServedAdapters::Removal::kUnknown:
        return post_error(to, {.status = 404,
                               .message = fmt::format("no adapter \"{}\" is served here", name),
                               .param = "lora_name",
                               .code = "adapter_not_found"});
    }
  });
}

}  // namespace jige::api
