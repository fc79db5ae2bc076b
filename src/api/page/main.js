// The page to chat in: what is on the screen, who answers, what the server is doing.

import { isChatItem, kSettings, loadChat, newChat, saveChat, saveSettings } from "./chats.js";
import { Attached } from "./images.js";
import { MessageList, byId, growWithText } from "./messages.js";
import { figuresOfUsage, requestOf } from "./request.js";
import { fetchModels, fetchTop, hasKey, setKey, streamAnswer } from "./server.js";
import { Sidebar } from "./sidebar.js";

const kWatchMs = 2000;
const kSaveMs = 2000;

const input = byId("input");

let chat = newChat();
let models = [];
let served = ""; // model and adapters by the last look at the server
let watching = false;
const running = new Map(); // id of a conversation -> {chat, message, controller, forgotten}

const list = new MessageList(act);
const sidebar = new Sidebar(openChat, forget);
const attached = new Attached(showState);

const model = () => models.find(({ id }) => id === byId("model").value) ?? null;
const answers = () => models.length > 0 && !models[0].type;

// ---- the conversation ----

function openChat(id) {
  chat = running.get(id)?.chat ?? (id ? loadChat(id) : null) ?? newChat();
  history.replaceState(null, "", chat.messages.length > 0 ? `#${chat.id}` : "#");
  list.show(chat, running.get(chat.id)?.message);
  showModels();
  showState();
  sidebar.show(chat.id);
  if (matchMedia("(hover: hover)").matches) input.focus();
}

// A conversation was deleted: an answer that is under way must not bring it back.
function forget(id) {
  const one = running.get(id);
  if (!one) return;
  one.forgotten = true;
  one.controller.abort();
}

function save(which) {
  if (!saveChat(which)) {
    showNotice("This browser keeps no more conversations; delete some to keep this one.");
  }
  if (which === chat) history.replaceState(null, "", `#${chat.id}`);
  sidebar.show(chat.id);
}

// What belongs to the state of this conversation: buttons, hints, title.
function showState() {
  const busy = running.has(chat.id);
  const send = byId("send");
  send.setAttribute("aria-label", busy ? "Stop" : "Send");
  send.querySelector("use").setAttribute("href", busy ? "#icon-stop" : "#icon-send");
  const empty = input.value.trim() === "" && attached.urls.length === 0;
  send.disabled = !busy && (!answers() || empty);
  byId("attach").hidden = !model()?.reads_images;
  input.disabled = models.length > 0 && !answers();
  byId("settings-open").classList.toggle("set", chat.settings.system !== "");
  const usage = chat.messages.findLast((message) => message.usage)?.usage;
  const most = model()?.max_model_len;
  byId("context").textContent =
    usage && most ? `${usage.prompt + usage.completion} of ${most} tokens of the context` : "";
  document.title = chat.title ? `${chat.title} · Jige` : "Jige";
}

function showNotice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = text === "";
}

// ---- answers ----

function send(text, images) {
  if (text.trim() === "" && images.length === 0) return false;
  if (running.has(chat.id) || !model() || !answers()) return false;
  chat.messages.push({ role: "user", content: text, images });
  begin();
  return true;
}

function begin() {
  const message = { role: "assistant", content: "", reasoning: "" };
  chat.messages.push(message);
  answer(chat, message, false);
}

// What a button of a message asks for; whether it was done.
function act(what, message, text) {
  if (running.has(chat.id) || !model()) return false;
  const at = chat.messages.indexOf(message);
  if (what === "continue") {
    chat.messages.length = at + 1;
    answer(chat, message, true);
    return true;
  }
  chat.messages.length = at;
  list.show(chat);
  if (what === "edit") return send(text, message.images ?? []);
  begin();
  return true;
}

async function answer(of, message, goesOn) {
  const controller = new AbortController();
  const one = { chat: of, message, controller };
  running.set(of.id, one);
  const before = of.messages.slice(0, of.messages.indexOf(message) + (goesOn ? 1 : 0));
  const asked = requestOf({ messages: before, settings: of.settings, model: model(), goesOn });
  Object.assign(message, { model: model().id, end: "", error: "", usage: null });
  list.show(of, message);
  list.grow(message);
  save(of);
  showState();
  byId("announcer").textContent = "Answering";
  try {
    await receive(of, message, streamAnswer(asked.path, asked.body, controller.signal));
  } catch (error) {
    message.end = error.name === "AbortError" ? "stopped" : "error";
    if (message.end === "error") message.error = error.message;
    if (error.status === 401) askForKey();
  }
  running.delete(of.id);
  if (!one.forgotten) save(of);
  list.finish(message);
  showState();
  byId("announcer").textContent = message.error || "The answer is complete";
}

async function receive(of, message, pieces) {
  let saved = performance.now();
  for await (const piece of pieces) {
    message.content += piece.text;
    message.reasoning += piece.reasoning;
    if (piece.finish) message.end = piece.finish;
    if (piece.usage) message.usage = figuresOfUsage(piece.usage);
    list.grow(message);
    if (performance.now() - saved < kSaveMs) continue;
    saveChat(of);
    saved = performance.now();
  }
}

// Images that were pasted or dropped; other things go where the browser puts them.
function takeImages(event, { files }) {
  if (model()?.reads_images && attached.add(files)) event.preventDefault();
}

const stop = () => running.get(chat.id)?.controller.abort();

// ---- the server ----

function showModels() {
  const choice = byId("model");
  const options = models.map(({ id, parent }) => {
    const option = new Option(parent ? `${id} (adapter)` : id, id);
    option.selected = id === chat.settings.model;
    return option;
  });
  choice.replaceChildren(...options);
  choice.hidden = models.length === 0;
  choice.disabled = models.length < 2;
  const name = model()?.id;
  byId("empty-note").textContent = name
    ? `${name} answers. What you write goes to this server alone.`
    : "The model is loading.";
  if (models.length === 0) return;
  if (!answers()) {
    byId("empty-note").textContent = "";
    const path = models[0].type === "rerank" ? "rerank" : "embeddings";
    showNotice(`This server is for POST /v1/${path} alone.`);
  } else if (!model().chat_template) {
    showNotice("This model has no chat template: it goes on with your text instead of answering.");
  } else {
    showNotice("");
  }
}

function statusOf(top) {
  if (top.loading) return "loading";
  if (top.stalled) return "stalled";
  if (!top.accepting) return "shutting down";
  if (top.running + top.waiting_requests === 0) return "idle";
  const waiting = top.waiting_requests > 0 ? `, ${top.waiting_requests} waiting` : "";
  return `${top.running} running${waiting} · ${Math.round(top.tokens_per_second)} tokens/s`;
}

async function look() {
  const top = await fetchTop();
  byId("status").textContent = statusOf(top);
  byId("status").dataset.state = top.loading || top.stalled || !top.accepting ? "off" : "on";
  const now = JSON.stringify([top.loading, top.model, top.adapters]);
  if (top.loading || now === served) return;
  models = await fetchModels();
  served = now;
  showModels();
  showState();
}

// Looks after the server while the page is to be seen.
async function watch() {
  if (watching) return;
  watching = true;
  while (!document.hidden && !byId("key").open) {
    try {
      await look();
    } catch (error) {
      if (error.status === 401) askForKey();
      if (error.status === 403) showNotice(error.message);
      byId("status").textContent = error.status ? "refused" : "not reachable";
      byId("status").dataset.state = "off";
      served = "";
    }
    await new Promise((resolve) => setTimeout(resolve, kWatchMs));
  }
  watching = false;
}

function askForKey() {
  if (byId("key").open) return;
  const wrong = hasKey();
  setKey("");
  byId("key-title").textContent = wrong
    ? "That is not a key of this server"
    : "This server asks for a key";
  byId("key-input").value = "";
  byId("key").showModal();
}

// ---- settings ----

function openSettings() {
  for (const name of kSettings) {
    const field = byId("settings").querySelector(`[name=${name}]`);
    if (field) field.value = chat.settings[name];
  }
  byId("forget-key").hidden = !hasKey();
  byId("settings").showModal();
}

function changeSetting({ target }) {
  if (!kSettings.includes(target.name)) return;
  chat.settings[target.name] = target.validity.valid ? target.value : "";
  keepSettings();
}

function keepSettings() {
  saveSettings(chat.settings);
  if (chat.messages.length > 0) save(chat);
  showState();
}

// ---- what a person does ----

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running.has(chat.id)) return stop();
  if (send(input.value, attached.urls)) {
    input.value = "";
    attached.set([]);
  }
  growWithText(input);
  showState();
});
input.addEventListener("input", () => {
  growWithText(input);
  showState();
});
input.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running.has(chat.id)) byId("composer").requestSubmit();
});
input.addEventListener("paste", (event) => takeImages(event, event.clipboardData));
addEventListener("dragover", (event) => {
  if (model()?.reads_images) event.preventDefault();
});
addEventListener("drop", (event) => takeImages(event, event.dataTransfer));
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || document.querySelector("dialog[open]")) return;
  if (sidebar.unfolded) {
    sidebar.unfold(false);
    byId("menu").focus();
  } else {
    stop();
  }
});
byId("model").addEventListener("change", () => {
  chat.settings.model = byId("model").value;
  keepSettings();
  showModels();
});
byId("settings-open").addEventListener("click", openSettings);
byId("settings").addEventListener("input", changeSetting);
byId("forget-key").addEventListener("click", () => {
  setKey("");
  byId("settings").close();
});
byId("key").addEventListener("close", () => {
  if (byId("key-input").value) setKey(byId("key-input").value);
  byId("key-input").value = "";
  watch();
});
addEventListener("visibilitychange", watch);
addEventListener("pagehide", () => {
  for (const one of running.values()) saveChat(one.chat);
});
addEventListener("storage", ({ key }) => {
  if (isChatItem(key)) sidebar.show();
});
addEventListener("hashchange", () => openChat(location.hash.slice(1)));

openChat(location.hash.slice(1));
watch();
