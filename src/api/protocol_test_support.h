// What the tests of POST /v1/responses and /v1/messages share: a model whose template shows all
// that a conversation can have, streams as their events, and whole answers put together from them.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/api_test_support.h"

namespace jige::api::testing {

// Shows tools, reasoning, calls and what came of them; answers may begin with reasoning.
inline ServedModel agent_model() {
  ServedModel model = test_model();
  model.tool_format = ToolFormat::kHermes;
  model.has_reasoning = true;
  model.chat_template = value_of(text::ChatTemplate::parse(
      "{% for t in tools or [] %}<{{ t.function.name }}:{{ t.function.parameters.type }}>"
      "{% endfor %}{% for m in messages %}[{{ m.role }}]"
      "{% if m.reasoning_content %}/{{ m.reasoning_content }}/{% endif %}{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}({{ c.id }} {{ c.function.name }} "
      "{{ c.function.arguments.x }}){% endfor %}{{ m.tool_call_id }}{% endfor %}"
      "{% if enable_thinking %}?{% endif %}{% if reasoning_effort %}+{{ reasoning_effort }}"
      "{% endif %}",
      "agent"));
  return model;
}

inline std::string prompt_of(const ApiResult<PreparedRequest>& read) {
  if (!read) return read.error().param + ": " + read.error().message;
  return value_of(character_tokenizer().decode(read->engine[0].prompt, {}));
}

// The JSON of each event of a stream; its name must be its type.
inline std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << "an unfinished event: " << stream.substr(begin);
    if (end == std::string::npos) break;
    const std::string frame = stream.substr(begin, end - begin);
    begin = end + 2;
    const size_t line = frame.find("\ndata: ");
    EXPECT_TRUE(frame.starts_with("event: ") && line != std::string::npos) << frame;
    if (line == std::string::npos) break;
    EXPECT_EQ(frame.find('\n', line + 1), std::string::npos) << frame;
    events.push_back(json_of(frame.substr(line + 7)));
    EXPECT_EQ(events.back()["type"], frame.substr(7, line - 7)) << frame;
  }
  return events;
}

// The items of /v1/responses as their deltas tell them; checks the order of the events on the way.
inline Json joined_items(const std::vector<Json>& events) {
  Json items = Json::array();
  bool open = false;
  for (size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    const std::string type = event["type"];
    EXPECT_EQ(event["sequence_number"], i);
    if (i < 2) {
      EXPECT_EQ(type, i == 0 ? "response.created" : "response.in_progress");
    }
    if (!event.contains("output_index")) continue;
    if (type == "response.output_item.added") {
      EXPECT_FALSE(open) << "an item inside another";
      EXPECT_EQ(event["output_index"], items.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      items.push_back(event["item"]);
      open = true;
      continue;
    }
    EXPECT_TRUE(open) << type;
    EXPECT_EQ(event["output_index"], items.size() - 1) << type;
    if (!open) break;
    Json& item = items.back();
    if (event.contains("item_id")) {
      EXPECT_EQ(event["item_id"], item["id"]) << type;
    }
    if (type == "response.content_part.added") {
      item["content"].push_back(event["part"]);
    } else if (type == "response.function_call_arguments.delta") {
      item["arguments"].get_ref<std::string&>() += event["delta"].get<std::string>();
    } else if (type.ends_with(".delta")) {
      Json& part = item["content"][0];
      part["text"].get_ref<std::string&>() += event["delta"].get<std::string>();
      EXPECT_EQ(event.contains("logprobs"), part.contains("logprobs"));
      if (!event.contains("logprobs")) continue;
      for (const Json& token : event["logprobs"]) part["logprobs"].push_back(token);
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(item["arguments"], event["arguments"]);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(item["content"][0], event["part"]);
    } else if (type.ends_with("_text.done")) {
      EXPECT_EQ(item["content"][0]["text"], event["text"]);
      EXPECT_EQ(item["content"][0].value("logprobs", Json()), event.value("logprobs", Json()));
    } else {
      EXPECT_EQ(type, "response.output_item.done");
      item["status"] = event["item"]["status"];
      EXPECT_EQ(item, event["item"]);
      open = false;
    }
  }
  EXPECT_FALSE(open) << "an item that does not end";
  return items;
}

// The message of /v1/messages as its events tell it; checks their order on the way.
inline Json joined_message(const std::vector<Json>& events) {
  if (events.size() < 4) return nullptr;
  EXPECT_EQ(events[0]["type"], "message_start");
  EXPECT_EQ(events[1]["type"], "ping");
  EXPECT_EQ(events.back()["type"], "message_stop");
  Json message = events[0]["message"];
  std::string input;
  bool open = false, ended = false;
  for (size_t i = 2; i + 1 < events.size(); ++i) {
    const Json& event = events[i];
    EXPECT_FALSE(ended) << event["type"];
    if (event["type"] == "message_delta") {
      EXPECT_FALSE(open) << "a block that does not stop";
      message.update(event["delta"]);
      message["usage"] = event["usage"];
      ended = true;
      continue;
    }
    Json& content = message["content"];
    const bool start = event["type"] == "content_block_start";
    EXPECT_NE(open, start) << "blocks do not stand inside one another";
    EXPECT_EQ(event["index"], content.size() - (start ? 0 : 1));
    open = event["type"] != "content_block_stop";
    if (start) {
      content.push_back(event["content_block"]);
      input.clear();
      continue;
    }
    Json& block = content.back();
    if (!open) {
      if (block["type"] == "tool_use") block["input"] = json_of(input);
      continue;
    }
    const Json& delta = event["delta"];
    if (delta["type"] == "input_json_delta") {
      input += delta["partial_json"].get<std::string>();
      continue;
    }
    const std::string member = block["type"];
    EXPECT_EQ(delta["type"], member + "_delta");
    block[member].get_ref<std::string&>() += delta[member].get<std::string>();
  }
  EXPECT_TRUE(ended);
  return message;
}

}  // namespace jige::api::testing
