// Images that a message is to have, as data: URLs: chosen, pasted or dropped, and shown.

import { byId } from "./messages.js";

const kTypes = ["image/png", "image/jpeg", "image/webp", "image/gif"];

export const isImage = (url) =>
  typeof url === "string" && kTypes.some((type) => url.startsWith(`data:${type};base64,`));

function readFile(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => resolve(null));
    reader.readAsDataURL(file);
  });
}

export function showImages(container, urls) {
  const images = urls.map((url) => {
    const image = new Image();
    image.src = url;
    image.alt = "An image";
    return image;
  });
  container.replaceChildren(...images);
}

// Those of the message that is being written. `changed` is told of every change.
export class Attached {
  constructor(changed) {
    this.urls = [];
    this.changed = changed;
    this.list = byId("attached");
    byId("attach").addEventListener("click", () => byId("files").click());
    byId("files").addEventListener("change", ({ target }) => {
      this.add(target.files);
      target.value = "";
    });
    this.list.addEventListener("click", ({ target }) => {
      const at = [...this.list.children].indexOf(target.closest("button"));
      if (at >= 0) this.set(this.urls.filter((_, index) => index !== at));
    });
  }

  // Whether one of the files is an image, which is then added.
  add(files) {
    const images = [...files].filter(({ type }) => kTypes.includes(type));
    Promise.all(images.map(readFile)).then((urls) => {
      this.set([...this.urls, ...urls.filter(isImage)]);
    });
    return images.length > 0;
  }

  set(urls) {
    this.urls = urls;
    const buttons = urls.map((url) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", "Remove the image");
      showImages(button, [url]);
      return button;
    });
    this.list.replaceChildren(...buttons);
    this.list.hidden = urls.length === 0;
    this.changed();
  }
}
