// Conversations, in this browser alone: one item of localStorage each, so that two tabs do not
// write over each other's.
//
//   {id, title, changed, settings: {model, system, temperature, top_p, max_tokens, seed},
//    messages: [{role, content, images, reasoning, model, end, error, usage}]}
//
// Images are data: URLs, and not kept where the browser has no room for them. Settings are texts as
// they were typed; an empty one is left to the server.

import { isImage } from "./images.js";

const kPrefix = "jige.chat.";
const kSettingsItem = "jige.settings";
const kTitleMax = 60;

export const kSettings = ["model", "system", "temperature", "top_p", "max_tokens", "seed"];

function readSettings(value) {
  const settings = {};
  for (const name of kSettings) {
    settings[name] = typeof value?.[name] === "string" ? value[name] : "";
  }
  return settings;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// What is stored may be of an older page, or damaged: null then.
function readChat(text) {
  const chat = parse(text);
  if (typeof chat?.id !== "string" || !Array.isArray(chat.messages)) return null;
  const sound = chat.messages.every(
    (one) =>
      ["user", "assistant"].includes(one?.role) &&
      typeof one.content === "string" &&
      (one.images ?? []).every?.(isImage),
  );
  if (!sound) return null;
  const title = String(chat.title ?? "");
  const changed = Number(chat.changed) || 0;
  return { ...chat, title, changed, settings: readSettings(chat.settings) };
}

export function newChat() {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  const settings = readSettings(parse(localStorage.getItem(kSettingsItem)));
  return { id, title: "", changed: 0, settings, messages: [] };
}

export const loadChat = (id) => readChat(localStorage.getItem(kPrefix + id));

// All of them, the one used last first.
export function listChats() {
  const chats = [];
  for (const item of Object.keys(localStorage)) {
    const chat = item.startsWith(kPrefix) ? readChat(localStorage.getItem(item)) : null;
    if (chat) chats.push({ id: chat.id, title: chat.title, changed: chat.changed });
  }
  return chats.sort((a, b) => b.changed - a.changed);
}

// False where the browser has no more room.
export function saveChat(chat) {
  const first = chat.messages.find((message) => message.role === "user");
  const title = first?.content || (first?.images?.length ? "An image" : "");
  chat.title = title.trim().replace(/\s+/g, " ").slice(0, kTitleMax);
  chat.changed = Date.now();
  const withoutImages = (name, value) => (name === "images" ? undefined : value);
  return [null, withoutImages].some((replacer) => {
    try {
      localStorage.setItem(kPrefix + chat.id, JSON.stringify(chat, replacer));
      return true;
    } catch {
      return false;
    }
  });
}

export function saveSettings(settings) {
  try {
    // The model and the system message belong to one conversation.
    localStorage.setItem(kSettingsItem, JSON.stringify({ ...settings, system: "" }));
  } catch {
    // A new chat then begins with the server's own.
  }
}

export const removeChat = (id) => localStorage.removeItem(kPrefix + id);

export function removeAllChats() {
  for (const item of Object.keys(localStorage)) {
    if (item.startsWith(kPrefix)) localStorage.removeItem(item);
  }
}

export const isChatItem = (item) => item === null || item.startsWith(kPrefix);
