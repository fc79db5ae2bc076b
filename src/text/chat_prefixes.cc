#include "text/chat_prefixes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "text/chat_compiled.h"

namespace jige::text {

// A run over all messages, from whose places others go on.
struct ChatPrefixes::Run {
  Run(const jinja::Template& tree, int64_t now_s) : interpreter(tree, now_s) {}

  jinja::Interpreter interpreter;
  std::shared_ptr<jinja::Watch> watch = std::make_shared<jinja::Watch>();
  std::vector<jinja::Place> places;
  std::string text;
  size_t shared_max = 0;  // bytes at its beginning that are those of ChatPrefixes::text_

  // The last place before which no more than `count` messages were looked at, or nullptr.
  const jinja::Place* last_place(size_t count) const {
    const auto behind =
        std::upper_bound(places.begin(), places.end(), count,
                         [](size_t seen, const jinja::Place& at) { return seen < at.seen; });
    return behind == places.begin() ? nullptr : &*(behind - 1);
  }
};

ChatPrefixes::ChatPrefixes(const ChatTemplate& chat, const Json& messages,
                           const ChatOptions& options)
    : chat_(chat), messages_(messages), options_(options) {}
ChatPrefixes::ChatPrefixes(ChatPrefixes&&) noexcept = default;
ChatPrefixes::~ChatPrefixes() = default;

Result<ChatPrefixes> ChatPrefixes::create(const ChatTemplate& chat, const Json& messages,
                                          const ChatOptions& options) {
  ChatPrefixes made(chat, messages, options);
  const bool prompt = options.add_generation_prompt;
  if (auto run = made.run_whole(prompt)) {
    made.text_ = (*run)->text;
    (*run)->shared_max = made.text_.size();
    made.runs_[prompt] = std::move(*run);
  } else {
    JIGE_TRY(ChatRender render, chat.render_with_spans(messages, options));
    made.text_ = std::move(render.text);
    made.steps_ += render.steps;
  }
  made.tried_[prompt] = true;
  return made;
}

Result<std::unique_ptr<ChatPrefixes::Run>> ChatPrefixes::run_whole(bool prompt) {
  JIGE_TRY(const Json list, prepared_messages(messages_, {.parts = chat_.compiled_->wants_parts}));
  auto run = std::make_unique<Run>(chat_.compiled_->tree, options_.now_s);
  JIGE_TRY(const jinja::Value values, jinja::from_json(list, run->interpreter.budget()));
  run->interpreter.define("messages", jinja::Value::watched(values, run->watch));
  ChatOptions options = options_;
  options.add_generation_prompt = prompt;
  JIGE_DO(define_options(run->interpreter, options));
  JIGE_TRY(ChatRender render, run->interpreter.run(&run->places));
  run->text = std::move(render.text);
  steps_ += render.steps;
  return run;
}

ChatPrefixes::Run* ChatPrefixes::run_of(bool prompt) {
  if (!tried_[prompt]) {
    tried_[prompt] = true;
    if (auto run = run_whole(prompt)) {
      const std::string& text = (*run)->text;
      const auto end =
          text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), text_.size()));
      (*run)->shared_max =
          static_cast<size_t>(std::mismatch(text.begin(), end, text_.begin()).first - text.begin());
      runs_[prompt] = std::move(*run);
    }
  }
  return runs_[prompt].get();
}

Result<ChatVariantText> ChatPrefixes::render(const ChatVariant& variant) {
  Run* run = run_of(variant.prompt);
  const size_t same = std::min(variant.count, variant.changed_at.value_or(variant.count));
  const jinja::Place* place = run ? run->last_place(same) : nullptr;
  if (!place) return render_anew(variant);
  jinja::Watch& watch = *run->watch;
  watch.limit = variant.count;
  watch.changed_at = variant.changed_at.value_or(jinja::Watch::kAll);
  if (variant.changed_at) {
    const Json message = prepared_message(variant.changed, {.parts = chat_.compiled_->wants_parts});
    JIGE_TRY(watch.changed, jinja::from_json(message, run->interpreter.budget()));
  }
  ++watch.version;
  auto again = run->interpreter.run_from(*place, {run->places, run->text, same});
  // The run's budget is one for all, and members that are null are kept where a template fails.
  if (!again) return render_anew(variant);
  steps_ += again->steps;
  const size_t common = again->shared_bytes;
  const size_t shared = std::min(common, run->shared_max);
  ChatVariantText text{.shared = shared,
                       .rest = run->text.substr(shared, common - shared) + again->middle,
                       .tail = again->tail_bytes};
  if (run != runs_[options_.add_generation_prompt].get()) {
    text.rest.append(run->text, run->text.size() - text.tail);
    text.tail = 0;
  }
  return text;
}

Result<ChatVariantText> ChatPrefixes::render_anew(const ChatVariant& variant) {
  Json part = Json::array();
  for (size_t i = 0; i < variant.count; ++i) {
    part.push_back(variant.changed_at == i ? variant.changed : messages_[i]);
  }
  ChatOptions options = options_;
  options.add_generation_prompt = variant.prompt;
  JIGE_TRY(ChatRender render, chat_.render_with_spans(part, options));
  steps_ += render.steps;
  return ChatVariantText{.shared = 0, .rest = std::move(render.text)};
}

}  // namespace jige::text
