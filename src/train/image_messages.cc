#include "train/image_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "text/chat_content.h"

namespace jige::train {
namespace {

constexpr std::string_view kMark = "<image>";

Json text_part(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

bool is_image_part(const Json& part) {
  const Json* type = part.is_object() ? find_field(part, "type") : nullptr;
  return type && (*type == "image" || *type == "image_url");
}

// Where a part's image comes from: a text, or one in an object. Empty: it names none.
Result<std::string> source_of(const Json& part, const std::string& place) {
  for (const char* field : {"image_url", "image", "url", "path"}) {
    const Json* found = find_field(part, field);
    if (!found) continue;
    if (found->is_object()) return source_of(*found, fmt::format("{}.{}", place, field));
    if (found->is_string()) return found->get<std::string>();
    return fail(Code::kInvalidArgument,
                "{}: field \"{}\" must be the path of a file or a data: URL, found {}", place,
                field, found->type_name());
  }
  return std::string();
}

class MessageReader {
 public:
  MessageReader(const std::string& refusal, const std::string& where)
      : refusal_(refusal), where_(where) {}

  Result<ImageMessages> read(const Json& object) {
    JIGE_DO(read_list(object));
    if (!object.contains("messages") || !object.at("messages").is_array() ||
        object.at("messages").empty()) {
      return fail(Code::kInvalidArgument,
                  "{}: field \"messages\" must be a list of {{\"role\", \"content\"}}", where_);
    }
    read_.messages = object.at("messages");
    for (size_t i = 0; i < read_.messages.size(); ++i) {
      JIGE_DO(read_message(read_.messages[i], fmt::format("messages[{}]", i)));
    }
    if (used_ == 0 && !list_.empty()) JIGE_DO(put_in_front());
    if (used_ == list_.size()) return std::move(read_);
    return fail(Code::kInvalidArgument,
                "{}: names {} images beside its messages, and these have places for {}", where_,
                list_.size(), used_);
  }

 private:
  // The images that a record names beside its messages: "images", or LLaVA's "image".
  Status read_list(const Json& object) {
    for (const char* field : {"images", "image"}) {
      const Json* found = find_field(object, field);
      if (!found) continue;
      if (!found->is_array()) {
        JIGE_DO(add_to_list(*found, fmt::format("{}: field \"{}\"", where_, field)));
        continue;
      }
      for (size_t i = 0; i < found->size(); ++i) {
        JIGE_DO(add_to_list((*found)[i], fmt::format("{}: {}[{}]", where_, field, i)));
      }
    }
    if (list_.empty() || refusal_.empty()) return {};
    return fail(Code::kUnsupported, "{}: has {} images beside its messages; {}", where_,
                list_.size(), refusal_);
  }

  Status add_to_list(const Json& image, const std::string& place) {
    std::string source;
    if (image.is_string()) source = image.get<std::string>();
    if (image.is_object()) {
      JIGE_TRY(source, source_of(image, place));
    }
    if (source.empty()) {
      return fail(Code::kInvalidArgument, "{}: is no path of a file and no data: URL", place);
    }
    list_.push_back(std::move(source));
    return {};
  }

  Status read_message(Json& message, const std::string& name) {
    const std::string place = fmt::format("{}: {}", where_, name);
    if (!message.is_object()) {
      return fail(Code::kInvalidArgument, "{}: {} is not an object", where_, name);
    }
    JIGE_TRY(const std::string role, get_string(message, "role", place));
    const Json* content = find_field(message, "content");
    // A message of tool calls may have no content; the template decides.
    if (!content && message.contains("tool_calls")) return {};
    if (!content) JIGE_DO(get_string(message, "content", place));
    JIGE_TRY(Json read, read_content(*content, name));
    if (read.is_array() && role == "assistant") {
      return fail(Code::kUnsupported,
                  "{}: has an image, and answers with images are not learned: images belong to "
                  "what is asked",
                  place);
    }
    message["content"] = std::move(read);
    return {};
  }

  // A text, or a list with images.
  Result<Json> read_content(const Json& content, const std::string& name) {
    if (content.is_string() && !list_.empty()) return split_at_marks(content, name);
    bool any = false;
    if (content.is_array()) {
      for (const Json& part : content) any = any || is_image_part(part);
    }
    if (!any) {
      JIGE_TRY(std::string text,
               text::chat_content_text(content, fmt::format("{}: {}", where_, name)));
      return Json(std::move(text));
    }
    Json list = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string part_name = fmt::format("{}.content[{}]", name, i);
      if (is_image_part(content[i])) {
        if (!refusal_.empty()) {
          return fail(Code::kUnsupported, "{}: {}: is of type {}; {}", where_, part_name,
                      dump_json(content[i]["type"]), refusal_);
        }
        JIGE_TRY(std::string source,
                 source_of(content[i], fmt::format("{}: {}", where_, part_name)));
        JIGE_DO(add_image(std::move(source), part_name));
        list.push_back({{"type", "image"}});
        continue;
      }
      JIGE_TRY(std::string text, text::chat_content_text(Json::array({content[i]}),
                                                         fmt::format("{}: {}", where_, part_name)));
      list.push_back(text_part(std::move(text)));
    }
    return list;
  }

  Result<Json> split_at_marks(const Json& content, const std::string& name) {
    const auto& text = content.get_ref<const std::string&>();
    if (text.find(kMark) == text.npos) return content;
    Json list = Json::array();
    size_t from = 0;
    for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, from)) {
      if (at > from) list.push_back(text_part(text.substr(from, at - from)));
      JIGE_DO(add_image("", name));
      list.push_back({{"type", "image"}});
      from = at + kMark.size();
    }
    if (from < text.size()) list.push_back(text_part(text.substr(from)));
    return list;
  }

  // An empty source: the next one of the list.
  Status add_image(std::string source, const std::string& name) {
    if (source.empty() && used_ == list_.size()) {
      return fail(Code::kInvalidArgument,
                  "{}: {} has a place for an image, and {}; name its file, as in {{\"type\": "
                  "\"image\", \"image\": \"photo.jpg\"}}",
                  where_, name,
                  list_.empty() ? std::string("the record names none for it")
                                : fmt::format("the record names {} alone", list_.size()));
    }
    if (read_.sources.size() == kRecordImagesMax) {
      return fail(Code::kInvalidArgument, "{}: has more than {} images", where_, kRecordImagesMax);
    }
    read_.sources.push_back(source.empty() ? list_[used_++] : std::move(source));
    read_.places.push_back(name);
    return {};
  }

  // All of the list before the text of the first message of a user.
  Status put_in_front() {
    if (!read_.sources.empty()) return {};  // parts name theirs: then the list has no places
    for (size_t i = 0; i < read_.messages.size(); ++i) {
      Json& message = read_.messages[i];
      if (message["role"] != "user") continue;
      Json parts = Json::array();
      for (size_t image = 0; image < list_.size(); ++image) {
        JIGE_DO(add_image("", fmt::format("messages[{}]", i)));
        parts.push_back({{"type", "image"}});
      }
      const Json* content = find_field(message, "content");
      if (content && content->is_string() && *content != "") parts.push_back(text_part(*content));
      message["content"] = std::move(parts);
      return {};
    }
    return {};
  }

  const std::string& refusal_;
  const std::string& where_;
  std::vector<std::string> list_;
  size_t used_ = 0;  // of the list
  ImageMessages read_;
};

}  // namespace

Result<ImageMessages> read_image_messages(const Json& object, const std::string& refusal,
                                          const std::string& where) {
  return MessageReader(refusal, where).read(object);
}

Status check_no_images(const Json& object, const std::string& refusal, const std::string& where) {
  for (const char* field : {"images", "image"}) {
    const Json* found = find_field(object, field);
    if (!found || found->empty() || *found == "") continue;
    return fail(
        Code::kUnsupported,
        "{}: has \"{}\" beside its texts; {}; leave \"{}\" out to learn from the texts alone",
        where, field,
        refusal.empty() ? "images are read in \"messages\" alone, so write it as these" : refusal,
        field);
  }
  return {};
}

}  // namespace jige::train
