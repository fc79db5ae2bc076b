#include "cli/speculation_texts.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/chat_defaults.h"
#include "grammar/constraint_compiler.h"
#include "serve/answer.h"
#include "text/chat_encode.h"
#include "text/chat_template.h"

namespace jige::cli {
namespace {

struct Texts {
  std::string name;
  std::string system;
  std::vector<std::string> questions;
  Json schema = nullptr;  // that answers have to fit; null: none
};

const char* const kHelpful = "You are a helpful assistant.";

Texts quotes() {
  return {.name = "quotes",
          .system = kHelpful,
          .questions = {
              "Copy this text word for word:\n\nThe old harbour had two cranes and a small office, "
              "where the clerk wrote down the name of every ship that came in. In the winter of "
              "1962 the ice was so thick that no ship came for eleven weeks, and the clerk drew "
              "birds in the margins of his book instead.",
              "Here is a function:\n\ndef total_price(items, tax_rate):\n    total = 0\n    for "
              "item in items:\n        total += item.price * item.count\n    return total * (1 + "
              "tax_rate)\n\nWrite it again with the name sum_of_prices, and change nothing else.",
              "Quote the sentences of this text that are about bread, and nothing else:\n\nAnna "
              "opens the bakery at five. The first bread is ready at six, and most of it is sold "
              "before eight. Cakes take longer. On Fridays there is a bread with walnuts, which "
              "people order days before."}};
}

Texts people() {
  const Json text = {{"type", "string"}, {"maxLength", 40}};
  Json properties;
  properties["full_name"] = text;
  properties["age_in_years"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", 120}};
  properties["city_of_residence"] = text;
  properties["occupation"] = text;
  properties["is_employed"] = {{"type", "boolean"}};
  properties["favourite_season"] = {{"enum", {"spring", "summer", "autumn", "winter"}}};
  Json required = Json::array();
  for (const auto& [name, one] : properties.items()) required.push_back(name);
  return {
      .name = "JSON schema",
      .system = kHelpful,
      .questions =
          {"Describe this person as JSON: Maria Lopez is 34 years old and lives in Madrid, where "
           "she works as a nurse. She likes the summer.",
           "Describe this person as JSON: Jonas Berg, 71, was a carpenter and lives in Oslo. "
           "He waits for the snow every year.",
           "Describe this person as JSON: In Lagos, Amara Obi (22) studies law. Her favourite "
           "time is when the leaves fall."},
      .schema = {{"type", "object"},
                 {"properties", properties},
                 {"required", required},
                 {"additionalProperties", false}}};
}

Json call_of(const std::string& name, const Json& properties) {
  Json required = Json::array();
  for (const auto& [key, one] : properties.items()) required.push_back(key);
  return {{"type", "object"},
          {"properties",
           {{"name", {{"const", name}}},
            {"arguments",
             {{"type", "object"},
              {"properties", properties},
              {"required", required},
              {"additionalProperties", false}}}}},
          {"required", {"name", "arguments"}},
          {"additionalProperties", false}};
}

Texts calls() {
  const Json text = {{"type", "string"}, {"maxLength", 60}};
  const Json weather = {{"city", text},
                        {"days_ahead", {{"type", "integer"}, {"minimum", 0}, {"maximum", 14}}},
                        {"temperature_unit", {{"enum", {"celsius", "fahrenheit"}}}}};
  const Json message = {{"recipient", text}, {"message_text", text}};
  const Json calendar = {{"event_title", text},
                         {"date", {{"type", "string"}, {"format", "date"}}},
                         {"reminder_enabled", {{"type", "boolean"}}}};
  return {
      .name = "tool call",
      .system =
          "Answer with a call of one of these tools, as JSON with name and arguments: "
          "get_weather_forecast(city, days_ahead, temperature_unit), "
          "send_text_message(recipient, message_text), "
          "create_calendar_event(event_title, date, reminder_enabled).",
      .questions = {"What will the weather be like in Toronto tomorrow, in celsius?",
                    "Tell Priya that the meeting begins at nine.",
                    "Put the visit of the dentist into my calendar, on 2026-03-14, and remind "
                    "me of it."},
      .schema = {{"anyOf",
                  {call_of("get_weather_forecast", weather), call_of("send_text_message", message),
                   call_of("create_calendar_event", calendar)}}}};
}

Texts free_texts() {
  return {.name = "free text",
          .system = kHelpful,
          .questions = {"Why is the sky blue?", "Write a short story about a lighthouse.",
                        "What should I think of before I buy a bicycle?"}};
}

}  // namespace

Result<std::vector<SpeculationCase>> text_cases(const text::Tokenizer& tokenizer,
                                                const formats::ModelConfig& config) {
  const std::string& own = tokenizer.chat_template();
  JIGE_TRY(const auto chat,
           text::ChatTemplate::parse(own.empty() ? default_chat_template() : own, "chat template"));
  grammar::ConstraintCompiler compiler(tokenizer);
  std::vector<SpeculationCase> cases;
  for (const Texts& texts : {quotes(), people(), calls(), free_texts()}) {
    SpeculationCase one{.name = texts.name, .stop_ids = serve::end_ids(tokenizer, config)};
    for (const std::string& question : texts.questions) {
      const Json messages = {{{"role", "system"}, {"content", texts.system}},
                             {{"role", "user"}, {"content", question}}};
      JIGE_TRY(one.prompts.emplace_back(),
               text::encode_chat(tokenizer, chat, messages, {.add_generation_prompt = true}));
    }
    if (!texts.schema.is_null()) {
      JIGE_TRY(one.constraint,
               compiler.compile({grammar::ConstraintSource::Kind::kJsonSchema, texts.schema}));
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace jige::cli
