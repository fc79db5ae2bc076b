// Light Markdown as elements: headings, lists, tables, quotes, fences, emphasis, code, links.
//
// The text comes from a model and is hostile: it only ever becomes the data of text nodes and the
// address of links that lead to http, https or mailto. Nothing is parsed as HTML. Marks that never
// end take no time that matters; lists, quotes and marks inside each other are bounded.

const kDepthMax = 6; // lists and quotes inside each other
const kOpenMax = 32; // marks that wait for their end
const kRunMax = 3; // of one mark: ***both***
const kTargetMax = 1000; // characters of an address
const kColumnsMax = 64;
const kSafe = ["http:", "https:", "mailto:"];

const kFence = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const kRule = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const kDelimiters = /^[ \t|:-]+$/;
const kMark = /[\\`*_~[\]\n]|!\[|<br ?\/?>|https?:\/\//g;
const kAddress = /https?:\/\/[^\s<>"`]{1,1000}/y;
const kPunctuation = /[!-/:-@[-`{-~]/;
const kWord = /[\p{L}\p{N}_]/u;

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function appendAll(parent, nodes) {
  for (const node of nodes) parent.appendChild(node);
  return parent;
}

// A link to the address, or nothing where it is none to follow.
function linkTo(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!kSafe.includes(url.protocol)) return null;
  const link = element("a");
  link.href = url.href;
  link.title = url.href;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  return link;
}

// ---- inside a line ----

// The nodes of a text, read from left to right; marks that may open wait on a stack.
class InlineReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.parts = [];
    this.plain = "";
    this.open = []; // {mark, count, index}: parts[index] is the text of the mark itself
  }

  read() {
    const { text } = this;
    while (this.at < text.length) {
      kMark.lastIndex = this.at;
      const found = kMark.exec(text);
      this.plain += text.slice(this.at, found ? found.index : text.length);
      if (!found) break;
      this.at = found.index;
      this.readMark(found[0]);
    }
    this.flush();
    return this.parts;
  }

  flush() {
    if (this.plain) this.parts.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  take(count) {
    this.plain += this.text.slice(this.at, this.at + count);
    this.at += count;
  }

  push(node, end) {
    this.flush();
    this.parts.push(node);
    this.at = end;
  }

  readMark(mark) {
    if (mark === "\n" || mark[0] === "<") return this.push(element("br"), this.at + mark.length);
    if (mark === "\\") return this.readEscape();
    if (mark === "`") return this.readCode();
    if (mark === "[" || mark === "![") return this.openMark("[", mark.length, mark.length);
    if (mark === "]") return this.readLinkEnd();
    if (mark[0] === "h") return this.readAddress();
    this.readEmphasis(mark);
  }

  readEscape() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") return this.push(element("br"), this.at + 2);
    this.at += kPunctuation.test(next) ? 1 : 0;
    this.take(1);
  }

  runLength(mark) {
    let end = this.at;
    while (this.text[end] === mark) ++end;
    return end - this.at;
  }

  readCode() {
    const count = this.runLength("`");
    const begin = this.at + count;
    const end = this.findRun(begin, count);
    if (end < 0) return this.take(count); // once for each length of a run
    let code = this.text.slice(begin, end);
    if (code.startsWith(" ") && code.endsWith(" ") && !isBlank(code)) code = code.slice(1, -1);
    this.push(element("code", "", code), end + count);
  }

  // Where a run of exactly `count` ` begins, from `begin` on; -1: nowhere.
  findRun(begin, count) {
    for (let at = this.text.indexOf("`", begin); at >= 0; ) {
      let end = at;
      while (this.text[end] === "`") ++end;
      if (end - at === count) return at;
      at = this.text.indexOf("`", end);
    }
    return -1;
  }

  openMark(mark, count, length) {
    if (this.open.length >= kOpenMax) return this.take(length);
    this.flush();
    const text = this.text.slice(this.at, this.at + length);
    this.open.push({ mark, count, index: this.parts.length });
    this.push(document.createTextNode(text), this.at + length);
  }

  readEmphasis(mark) {
    const count = this.runLength(mark);
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + count] ?? " ";
    if (count > kRunMax || (mark === "~" && count !== 2)) return this.take(count);
    const inWord = mark === "_" && kWord.test(before) && kWord.test(after);
    const closes = !/\s/.test(before) && !inWord;
    const opens = !/\s/.test(after) && !inWord;
    this.flush();
    let left = count;
    while (closes && left > 0) {
      const used = this.closeEmphasis(mark, left);
      if (used === 0) break;
      left -= used;
    }
    this.at += count - left;
    if (left === 0) return;
    if (opens) return this.openMark(mark, left, left);
    this.take(left);
  }

  // How many marks of the closing run found their beginning.
  closeEmphasis(mark, left) {
    const equal = this.open.findLastIndex((one) => one.mark === mark && one.count === left);
    const level = equal < 0 ? this.open.findLastIndex((one) => one.mark === mark) : equal;
    if (level < 0) return 0;
    const opener = this.open[level];
    if (opener.index + 1 >= this.parts.length) return 0;
    const used = Math.min(2, left, opener.count);
    const tag = mark === "~" ? "s" : used === 2 ? "strong" : "em";
    this.wrap(level, element(tag), used);
    return used;
  }

  // Puts all behind the opener into the element, and takes `used` of its marks away.
  wrap(level, made, used) {
    const opener = this.open[level];
    appendAll(made, this.parts.splice(opener.index + 1));
    opener.count -= used;
    this.open.length = opener.count > 0 ? level + 1 : level;
    if (opener.count > 0) {
      this.parts[opener.index].data = this.parts[opener.index].data.slice(used);
    } else {
      this.parts.length = opener.index;
    }
    this.parts.push(made);
  }

  readLinkEnd() {
    const level = this.open.findLastIndex((one) => one.mark === "[");
    const target = level >= 0 && this.text[this.at + 1] === "(" ? this.readTarget() : null;
    const link = target ? linkTo(target.address) : null;
    if (!link) {
      if (level >= 0) this.open.splice(level, 1);
      return this.take(1);
    }
    this.flush();
    const opener = this.open[level];
    this.wrap(level, link, opener.count);
    if (link.querySelector("a") || !link.textContent) {
      link.textContent = link.textContent || link.href;
    }
    this.open = this.open.filter((one) => one.mark !== "["); // no links inside links
    this.at = target.end;
  }

  // The address in (brackets) behind "]", a title passed over.
  readTarget() {
    const begin = this.at + 2;
    const text = this.text.slice(begin, begin + kTargetMax);
    let depth = 1;
    for (let i = 0; i < text.length; ++i) {
      if (text[i] === "(") ++depth;
      if (text[i] === ")") --depth;
      if (depth > 0 && text[i] !== "\n") continue;
      if (depth > 0) return null;
      const words = text.slice(0, i).trim().split(/ ["']/, 1);
      return { address: words[0].replace(/^<|>$/g, ""), end: begin + i + 1 };
    }
    return null;
  }

  readAddress() {
    kAddress.lastIndex = this.at;
    const found = kAddress.exec(this.text);
    let address = found ? found[0] : "";
    let end = address.length;
    while (end > 0 && ".,;:!?)]}'*_~".includes(address[end - 1])) --end;
    address = address.slice(0, end);
    const link = end > 8 ? linkTo(address) : null;
    if (!link) return this.take(1);
    link.textContent = address;
    this.push(link, this.at + end);
  }
}

function inline(parent, text) {
  return appendAll(parent, new InlineReader(text).read());
}

// ---- lines ----

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;
const isTable = (lines, at) =>
  lines[at].includes("|") &&
  at + 1 < lines.length &&
  kDelimiters.test(lines[at + 1]) &&
  lines[at + 1].includes("-") &&
  lines[at + 1].includes("|");

// Whether a line ends the paragraph before it.
const interrupts = (lines, at) =>
  kFence.test(lines[at]) ||
  kHeading.test(lines[at]) ||
  kRule.test(lines[at]) ||
  kQuote.test(lines[at]) ||
  /^ {0,3}(?:[-*+]|1[.)])[ \t]/.test(lines[at]) ||
  isTable(lines, at);

function fenceEnd(lines, begin) {
  const [, mark] = lines[begin].match(kFence);
  for (let at = begin + 1; at < lines.length; ++at) {
    const line = lines[at].trim();
    if (line.startsWith(mark) && line === mark[0].repeat(line.length)) return at;
  }
  return lines.length;
}

// The lines of a list that begins here, up to what is neither an item nor belongs to one.
function listEnd(lines, begin) {
  const base = indentOf(lines[begin]);
  let at = begin + 1;
  for (let blank = false; at < lines.length; ++at) {
    if (isBlank(lines[at])) {
      blank = true;
      continue;
    }
    const item = kItem.test(lines[at]) && !kRule.test(lines[at]);
    const inside = indentOf(lines[at]) >= base + 2 || (item && indentOf(lines[at]) >= base);
    if (!inside && (blank || interrupts(lines, at))) break;
    blank = false;
  }
  while (isBlank(lines[at - 1])) --at;
  return at;
}

// Where the block that begins here ends, and what it is.
function readBlock(lines, at) {
  const line = lines[at];
  if (kFence.test(line)) {
    return { kind: "fence", end: Math.min(fenceEnd(lines, at) + 1, lines.length) };
  }
  if (kHeading.test(line)) return { kind: "heading", end: at + 1 };
  if (kRule.test(line)) return { kind: "rule", end: at + 1 };
  let end = at + 1;
  if (kQuote.test(line)) {
    while (end < lines.length && !isBlank(lines[end])) ++end;
    return { kind: "quote", end };
  }
  if (kItem.test(line)) return { kind: "list", end: listEnd(lines, at) };
  if (isTable(lines, at)) {
    while (end < lines.length && lines[end].includes("|")) ++end;
    return { kind: "table", end };
  }
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines, end)) ++end;
  return { kind: "paragraph", end };
}

function readBlocks(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) {
      ++at;
      continue;
    }
    const { kind, end } = readBlock(lines, at);
    blocks.push({ kind, lines: lines.slice(at, end) });
    at = end;
  }
  return blocks;
}

// ---- elements of blocks ----

function fence(lines) {
  const [, , language] = lines[0].match(kFence);
  const closed = lines.length > 1 && fenceEnd(lines, 0) === lines.length - 1;
  const made = element("figure", "code");
  const bar = element("figcaption");
  bar.append(element("span", "", language.trim().split(/\s/, 1)[0].slice(0, 40)));
  const copy = element("button", "quiet", "Copy");
  copy.type = "button";
  copy.dataset.copy = "code";
  copy.setAttribute("aria-label", "Copy code");
  bar.append(copy);
  const pre = element("pre");
  pre.tabIndex = 0;
  pre.append(element("code", "", lines.slice(1, closed ? -1 : undefined).join("\n")));
  made.append(bar, pre);
  return made;
}

function heading(lines) {
  const [all, marks] = lines[0].match(kHeading);
  return inline(element(`h${marks.length}`), lines[0].slice(all.length).trim());
}

function quote(lines, depth) {
  const inner = lines.map((line) => line.replace(kQuote, ""));
  return appendAll(element("blockquote"), elements(inner, depth + 1));
}

function list(lines, depth) {
  const base = indentOf(lines[0]);
  const ordered = /\d/.test(lines[0].match(kItem)[2]);
  const made = element(ordered ? "ol" : "ul");
  const first = Number.parseInt(lines[0].match(kItem)[2], 10);
  if (ordered && first !== 1) made.start = first;
  const items = [];
  let column = 0;
  for (const line of lines) {
    const found = indentOf(line) < base + 2 && !kRule.test(line) ? line.match(kItem) : null;
    if (found) {
      const rest = line.slice(found[0].length);
      column = found[0].length + Math.min(4, Math.max(1, indentOf(rest)));
      items.push([rest.trimStart()]);
    } else {
      items.at(-1).push(line.slice(Math.min(indentOf(line), column)));
    }
  }
  for (const item of items) made.append(listItem(item, depth));
  return made;
}

function listItem(lines, depth) {
  const made = element("li");
  const inner = elements(lines, depth + 1);
  const tight = !lines.some(isBlank);
  for (const node of inner) {
    if (tight && node.localName === "p") appendAll(made, [...node.childNodes]);
    else made.append(node);
  }
  return made;
}

function cellsOf(line) {
  const cells = [""];
  for (const piece of line.trim().split(/(\\\||\|)/)) {
    if (piece === "|") cells.push("");
    else cells[cells.length - 1] += piece === "\\|" ? "|" : piece;
    if (cells.length > kColumnsMax) break;
  }
  if (cells[0].trim() === "") cells.shift();
  if (cells.length > 1 && cells.at(-1).trim() === "") cells.pop();
  return cells.map((cell) => cell.trim());
}

function table(lines) {
  const made = element("table");
  const sides = cellsOf(lines[1]).map((cell) => {
    if (!cell.endsWith(":")) return "";
    return cell.startsWith(":") ? "middle" : "end";
  });
  const row = (line, tag) => {
    const cells = cellsOf(line).slice(0, sides.length);
    return appendAll(element("tr"), cells.map((cell, i) => inline(element(tag, sides[i]), cell)));
  };
  made.createTHead().append(row(lines[0], "th"));
  const body = made.createTBody();
  for (const line of lines.slice(2)) body.append(row(line, "td"));
  const frame = element("div", "table");
  frame.tabIndex = 0;
  frame.append(made);
  return frame;
}

function blockElement({ kind, lines }, depth) {
  switch (kind) {
    case "fence":
      return fence(lines);
    case "heading":
      return heading(lines);
    case "rule":
      return element("hr");
    case "quote":
      return depth < kDepthMax ? quote(lines, depth) : element("p", "", lines.join("\n"));
    case "list":
      return depth < kDepthMax ? list(lines, depth) : element("p", "", lines.join("\n"));
    case "table":
      return table(lines);
    default:
      return inline(element("p"), lines.map((line) => line.trim()).join("\n"));
  }
}

function elements(lines, depth) {
  return readBlocks(lines).map((block) => blockElement(block, depth));
}

// The lines of a text; tabs that indent are spaces but in fences, which may be copied.
function linesOf(text) {
  let fenced = false;
  return text.split(/\r\n?|\n/).map((line) => {
    if (/^\s*(?:```|~~~)/.test(line)) fenced = !fenced;
    return fenced ? line : line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
  });
}

const rendered = new WeakMap(); // container -> what its children were made from

// Shows the text in the container. Blocks that are there already stay the elements they are, so
// that an answer can be shown as it grows.
export function renderMarkdown(container, text) {
  const blocks = readBlocks(linesOf(text));
  const sources = blocks.map(({ kind, lines }) => `${kind}\n${lines.join("\n")}`);
  const before = rendered.get(container) ?? [];
  let same = 0;
  while (same < before.length && before[same] === sources[same]) ++same;
  while (container.childNodes.length > same) container.lastChild.remove();
  for (const block of blocks.slice(same)) container.append(blockElement(block, 0));
  rendered.set(container, sources);
}
