// The list of conversations at the side; on a phone it comes over the page.

import { listChats, removeAllChats, removeChat } from "./chats.js";
import { byId, fromTemplate } from "./messages.js";

const kNarrow = matchMedia("(max-width: 52rem)");

export class Sidebar {
  // `open(id)` shows a conversation, null a new one; `forget(id)`: it is deleted.
  constructor(open, forget) {
    this.open = open;
    this.forget = forget;
    this.current = null;
    byId("menu").addEventListener("click", () => this.unfold(byId("shade").hidden));
    byId("shade").addEventListener("click", () => this.unfold(false));
    byId("new-chat").addEventListener("click", () => this.choose(null));
    byId("delete-all").addEventListener("click", () => this.deleteAll());
    kNarrow.addEventListener("change", () => this.unfold(false));
    this.unfold(false);
  }

  get unfolded() {
    return !byId("shade").hidden;
  }

  unfold(wanted) {
    byId("shade").hidden = !wanted;
    byId("sidebar").classList.toggle("unfolded", wanted);
    byId("sidebar").inert = kNarrow.matches && !wanted;
    byId("menu").setAttribute("aria-expanded", String(wanted));
    if (wanted) byId("new-chat").focus();
  }

  choose(id) {
    this.unfold(false);
    this.open(id);
  }

  show(current = this.current) {
    this.current = current;
    const rows = listChats().map(({ id, title }) => {
      const row = fromTemplate("chat-row");
      const [open, remove] = row.children;
      open.textContent = title || "Untitled";
      open.addEventListener("click", () => this.choose(id));
      if (id === current) open.setAttribute("aria-current", "page");
      remove.setAttribute("aria-label", `Delete ${title}`);
      remove.addEventListener("click", () => this.delete(id, title));
      return row;
    });
    byId("chats").replaceChildren(...rows);
    byId("kept").hidden = rows.length === 0;
  }

  delete(id, title) {
    if (!confirm(`Delete “${title}”?`)) return;
    this.forget(id);
    removeChat(id);
    if (id === this.current) this.open(null);
    else this.show();
  }

  deleteAll() {
    if (!confirm("Delete all conversations of this browser?")) return;
    for (const { id } of listChats()) this.forget(id);
    removeAllChats();
    this.open(null);
  }
}
