// ChatForm: a request of another protocol, written as the chat completion that asks the same.
//
//   ChatForm form;
//   form.set("max_tokens", *field, "max_output_tokens");
//   form.add_message({{"role", "user"}, {"content", text}}, "input[0]");
//   auto prepared = form.prepare(model, limits, seed);   // an error names "input[0]"
//
// What reads chat completions reads it then, so that a field means and may be the same under either
// name. Threads: one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/completion_request.h"

namespace jige::api {

// What is wrong with a field, if anything.
using Wrong = std::optional<ApiError>;

class ChatForm;

// How a protocol writes images among the parts of a content.
struct ImagePart {
  std::string_view type;
  // Adds one to the last message, by ChatForm::add_image. `where`: the part.
  Wrong (*add)(ChatForm& form, const Json& part, const std::string& where);
};

class ChatForm {
 public:
  // Takes over the fields that both have under one name, extensions of other servers among them.
  void keep(const Json& request);
  // Sets the member `name` from the field `own`; null: not at all.
  void set(const std::string& name, Json value, std::string own);
  // Adds a message that comes from the field `own`.
  void add_message(Json message, std::string own);
  // Adds a text to the content of the last message, which must be there.
  void add_text(const std::string& text);
  // Adds a part {"type": "image_url", …} that comes from the field `own` to the content of the last
  // message, which must be there; its URL comes from the field `own_url`.
  void add_image(Json part, std::string own, std::string own_url);
  // Adds a content to that of the last message, which must be there: a text, or a list of parts
  // that are images or of one of the types `texts`.
  Wrong add_content(const Json& content, const std::string& where,
                    std::span<const std::string_view> texts, const ImagePart& image);
  // Adds a call to the last message, which must be there.
  void add_call(Json call, std::string own);
  // The message added last, if it is of this role; else nullptr.
  Json* open_message(std::string_view role);
  Json* open_answer() { return open_message("assistant"); }
  // Makes errors about the member `name`, and what is inside it, name `own`.
  void name(std::string name, std::string own) { names_.emplace_back(std::move(name), own); }
  // What a part of a tool, a call or a message is called: of ".function.parameters", say.
  void name_inside(std::string name, std::string own) {
    insides_.emplace_back(std::move(name), std::move(own));
  }

  Json& body() { return body_; }
  ApiResult<PreparedRequest> prepare(const ServedModel& model, const RequestLimits& limits,
                                     uint64_t seed) const;
  // Tokens of the prompt it makes.
  ApiResult<int64_t> count_tokens(const ServedModel& model, const RequestLimits& limits) const;

 private:
  ApiError renamed(ApiError error) const;

  Json body_ = {{"messages", Json::array()}};
  std::vector<std::pair<std::string, std::string>> names_;
  std::vector<std::pair<std::string, std::string>> insides_;
};

// The member; null where it is absent, or `object` none.
const Json& member_of(const Json& object, std::string_view name);

// Adds to a member of a message that is a text, null or absent.
void append_text(Json& message, const char* name, const std::string& text);

// The field as an object; nullptr where it is absent or, which is noted, something else.
const Json* object_field(FieldReader& fields, std::string_view name);

}  // namespace jige::api
