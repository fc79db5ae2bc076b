// The server's API, as far as the page uses it. Addresses are relative: a proxy may serve the page
// under another path.

const kKeyItem = "jige.key"; // in sessionStorage: until the tab is closed

export class ServerError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status; // 0: no answer came
    this.code = code;
  }
}

export const hasKey = () => sessionStorage.getItem(kKeyItem) !== null;

export function setKey(key) {
  if (key) sessionStorage.setItem(kKeyItem, key);
  else sessionStorage.removeItem(kKeyItem);
}

async function errorOf(response) {
  try {
    const { error } = await response.json();
    return new ServerError(response.status, String(error.message), error.code);
  } catch {
    return new ServerError(response.status, `the server answered ${response.status}`);
  }
}

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (hasKey()) headers.Authorization = `Bearer ${sessionStorage.getItem(kKeyItem)}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "the server cannot be reached");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function fetchModels() {
  return (await (await send("v1/models")).json()).data;
}

// What the server is doing: see GET /top.
export async function fetchTop() {
  return (await send("top")).json();
}

// The frames of a stream, behind "data: ", up to [DONE].
async function* framesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// Asks for an answer and gives it in pieces: {text, reasoning, finish, usage}, each if it is there.
export async function* streamAnswer(path, body, signal) {
  const response = await send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let finished = false;
  try {
    for await (const frame of framesOf(response)) {
      if (frame.error) throw new ServerError(500, String(frame.error.message), frame.error.code);
      const choice = frame.choices?.[0] ?? {};
      finished ||= Boolean(choice.finish_reason);
      yield {
        text: choice.delta?.content ?? choice.text ?? "",
        reasoning: choice.delta?.reasoning_content ?? "",
        finish: choice.finish_reason ?? null,
        usage: frame.usage ?? null,
      };
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ServerError) throw error;
    throw new ServerError(0, "the connection to the server was lost");
  }
  if (!finished) throw new ServerError(0, "the connection to the server was lost");
}
