// The messages of the conversation on the screen, and how an answer looks while it grows.

import { showImages } from "./images.js";
import { renderMarkdown } from "./markdown.js";

const kSlowFactor = 4; // showing takes a fifth of the time at most

export const byId = (id) => document.getElementById(id);

export const fromTemplate = (id) => byId(id).content.firstElementChild.cloneNode(true);

// A field that is as high as its text.
export function growWithText(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

// Also where there is no navigator.clipboard, as in pages over plain HTTP from other machines.
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// Copies, and says so in the button for a moment.
async function copyFor(button, text) {
  await copyText(text);
  const label = button.getAttribute("aria-label");
  button.classList.add("done");
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => {
    button.classList.remove("done");
    button.setAttribute("aria-label", label);
  }, 1500);
}

function figuresOf({ content, usage, end }) {
  const words = content === "" && end === "stop" ? ["an empty answer"] : [];
  if (usage) {
    words.push(usage.completion === 1 ? "1 token" : `${usage.completion} tokens`);
    if (usage.rate > 0) words.push(`${usage.rate.toFixed(usage.rate < 10 ? 1 : 0)} a second`);
    const known = usage.cached > 0 ? `, ${usage.cached} known` : "";
    words.push(`prompt ${usage.prompt}${known}`);
  }
  if (end === "length") words.push("cut at the length");
  if (end === "stopped" || end === "abort") words.push("stopped");
  return words.join(" · ");
}

// Shows a message and follows it.
class MessageView {
  constructor(message) {
    this.message = message;
    this.node = fromTemplate(`message-${message.role}`);
    this.content = this.node.querySelector(".content");
    this.timer = 0;
    this.node.querySelector("details")?.addEventListener("toggle", () => this.showReasoning());
    this.show(false);
  }

  // Soon, and not more often than it takes to show.
  showSoon(after) {
    this.after = after;
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.show(true);
      this.after();
    }, Math.max(30, (this.cost ?? 0) * kSlowFactor));
  }

  show(growing) {
    const begin = performance.now();
    clearTimeout(this.timer);
    this.timer = 0;
    const { message, node } = this;
    if (message.role === "user") {
      this.content.textContent = message.content;
      showImages(node.querySelector(".images"), message.images ?? []);
      return;
    }
    renderMarkdown(this.content, message.content);
    const thinks = growing && message.content === "";
    node.classList.toggle("growing", growing);
    node.classList.toggle("waiting", thinks && !message.reasoning);
    node.querySelector("details").hidden = !message.reasoning;
    const count = message.usage?.reasoning ? ` · ${message.usage.reasoning} tokens` : "";
    node.querySelector("summary").textContent = thinks ? "Reasoning…" : `Reasoning${count}`;
    this.showReasoning();
    const error = node.querySelector(".error");
    error.hidden = !message.error;
    error.textContent = message.error ?? "";
    node.querySelector(".figures").textContent = growing ? "" : figuresOf(message);
    const cut = message.end === "length" || message.end === "stopped";
    const goesOn = cut && message.content !== "" && !message.reasoning;
    node.querySelector("[data-do=continue]").hidden = growing || !goesOn;
    this.cost = performance.now() - begin;
  }

  // Folded, it costs nothing.
  showReasoning() {
    const details = this.node.querySelector("details");
    if (!details.open) return;
    renderMarkdown(details.querySelector(".text"), this.message.reasoning ?? "");
  }
}

// The list of messages. `act` is told what was asked for: (what, message, text).
export class MessageList {
  constructor(act) {
    this.act = act;
    this.list = byId("messages");
    this.scroll = byId("scroll");
    this.views = new Map();
    this.list.addEventListener("click", (event) => this.onClick(event));
    this.scroll.addEventListener("scroll", () => this.onScroll(), { passive: true });
    byId("latest").addEventListener("click", () => this.scrollDown());
  }

  show(chat, growing) {
    for (const message of this.views.keys()) {
      if (!chat.messages.includes(message)) this.remove(message);
    }
    for (const message of chat.messages) {
      if (this.views.has(message)) continue;
      const view = new MessageView(message);
      this.views.set(message, view);
      this.list.append(view.node);
      if (message === growing) view.show(true);
    }
    byId("empty").hidden = chat.messages.length > 0;
    this.scrollDown();
  }

  remove(message) {
    this.views.get(message).node.remove();
    this.views.delete(message);
  }

  // Of a conversation that may be another than that on the screen.
  grow(message) {
    const follows = this.atEnd();
    this.views.get(message)?.showSoon(() => (follows ? this.scrollDown() : this.onScroll()));
  }

  finish(message) {
    const view = this.views.get(message);
    if (!view) return;
    const follows = this.atEnd();
    view.show(false);
    if (follows) this.scrollDown();
  }

  atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  scrollDown() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.onScroll();
  }

  onScroll() {
    byId("latest").hidden = this.atEnd();
  }

  onClick(event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) {
      return copyFor(button, button.closest("figure").querySelector("code").textContent);
    }
    const node = button.closest("li");
    const found = [...this.views.values()].find((view) => view.node.contains(node));
    if (!found || !button.dataset.do) return;
    const { message } = found;
    if (button.dataset.do === "edit") return this.edit(found);
    if (button.dataset.do !== "copy") return this.act(button.dataset.do, message);
    copyFor(button, message.content);
  }

  // A field in the place of the message.
  edit({ node, message }) {
    if (node.querySelector("form")) return;
    const form = fromTemplate("message-edit");
    const field = form.querySelector("textarea");
    field.value = message.content;
    const close = () => {
      form.remove();
      node.classList.remove("edited");
      node.querySelector("[data-do=edit]").focus();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() && this.act("edit", message, field.value)) close();
    });
    form.querySelector("[data-do=cancel]").addEventListener("click", close);
    field.addEventListener("input", () => growWithText(field));
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey) form.requestSubmit();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    node.classList.add("edited");
    node.append(form);
    growWithText(field);
    field.focus();
  }
}
