// What an answer is asked for with, and the figures that come with it.

const kNumbers = ["temperature", "top_p", "max_tokens", "seed"];
const kContinuedTokens = 256; // of a text, where nothing is said: the API's own 16 are few

// A message's content: parts where it has images.
function contentOf({ content, images = [] }) {
  if (images.length === 0) return content;
  const parts = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return content === "" ? parts : [...parts, { type: "text", text: content }];
}

// {path, body} of the request that answers these messages, or goes on with the last of them.
export function requestOf({ messages, settings, model, goesOn }) {
  const body = { model: model.id };
  for (const name of kNumbers) {
    if (settings[name] !== "") body[name] = Number(settings[name]);
  }
  if (!model.chat_template) {
    const texts = messages.map((message) => message.content);
    if (settings.system) texts.unshift(`${settings.system}\n`);
    const prompt = texts.join(""); // an answer goes on where its prompt ends
    return { path: "v1/completions", body: { max_tokens: kContinuedTokens, ...body, prompt } };
  }
  body.messages = messages
    .filter((message) => message.role === "user" || message.content !== "")
    .map((message) => ({ role: message.role, content: contentOf(message) }));
  if (settings.system) body.messages.unshift({ role: "system", content: settings.system });
  if (goesOn) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  return { path: "v1/chat/completions", body };
}

// Of an answer's `usage`; rate: tokens a second behind the first.
export function figuresOfUsage(usage) {
  const decodeMs = usage.timing?.decode_ms ?? 0;
  return {
    prompt: usage.prompt_tokens,
    completion: usage.completion_tokens,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
    reasoning: usage.completion_tokens_details?.reasoning_tokens ?? 0,
    rate: decodeMs > 0 ? ((usage.completion_tokens - 1) * 1000) / decodeMs : 0,
  };
}
