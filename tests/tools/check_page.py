"""Uses the page of running `jige serve`s in a real browser, as a person does.

    python tests/tools/check_page.py --chat URL --key URL KEY --plain URL --vectors URL --images URL FILE

Each is the address of a server: of a model that chats, the same behind a key, a model without chat template, an embedding model, a model that reads images, which gets this one. Needs Chromium, nothing else. Ends with 0 when everything is as it should be, with 77 where the browser does not start.
"""

import argparse
import base64
import json
import pathlib
import sys
import urllib.request

from browser import Browser

CASES = pathlib.Path(__file__).parents[1] / "fixtures/page/markdown.json"

# What may become of a text of the model, whatever it says: these elements with these attributes.
RENDERER = r"""
window.hit = () => { window.wasHit = true; };
const allowed = new Set(("p h1 h2 h3 h4 h5 h6 hr br em strong s code pre a ul ol li blockquote div table thead " +
  "tbody tr th td figure figcaption span button").split(" "));
const attributes = new Set("class href title target rel start tabindex type data-copy aria-label".split(" "));
window.unsafe = (container) => {
  for (const node of container.querySelectorAll("*")) {
    if (!allowed.has(node.localName)) return `element ${node.localName}`;
    for (const { name } of node.attributes) if (!attributes.has(name)) return `attribute ${name}`;
    if (node.localName !== "a") continue;
    if (!["http:", "https:", "mailto:"].includes(node.protocol)) return `link ${node.href}`;
    if (!node.rel.includes("noopener") || node.target !== "_blank") return "a link that is not apart";
  }
  let depth = 0;
  for (let node = container; node; node = node.querySelector(":scope > * > *")) ++depth;
  return depth > 200 ? "too deep" : "";
};
window.show = (text, container = document.createElement("div")) => {
  document.body.append(container);
  renderMarkdown(container, text);
  container.remove();
  return container;
};
window.plain = (container) => container.innerHTML
  .replaceAll(' target="_blank" rel="noopener noreferrer nofollow"', "")
  .replaceAll(/<button.*?<\/button>/g, "");
"""

FUZZ = r"""
(() => {
  let state = 1;
  const random = (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % below;
  };
  const pieces = ["*", "**", "_", "~~", "`", "```", "[", "](", ")", "!", "![", "\\", "\n", "\n\n", "# ", "> ",
    "- ", "1. ", "| ", "|-|", "a", " ", "    ", "\t", "https://x.example", "javascript:hit()", "<script>hit()</script>",
    "<img src=x onerror=hit()>", "<br>", "\"", "'", "&lt;", "\u202e", "\ud800", "é", "---", "(", "data:text/html,x"];
  for (let i = 0; i < 2000; ++i) {
    let text = "";
    for (let n = random(40); n >= 0; --n) text += pieces[random(pieces.length)];
    const whole = show(text);
    const wrong = unsafe(whole);
    if (wrong) return `${wrong}: ${JSON.stringify(text)}`;
    const grown = document.createElement("div");
    for (let end = 0; end < text.length; end += 1 + random(9)) show(text.slice(0, end), grown);
    show(text, grown);
    if (grown.innerHTML !== whole.innerHTML) return `grows otherwise: ${JSON.stringify(text)}`;
  }
  return "";
})()
"""

# 100 KB each; time that is not linear would be minutes.
LONG = r"""
(() => {
  const units = ["a", "*", "*a ", "**a* ", "_a_", "`", "`` ` ", "[", "[a](", "](", "[a](b", "![", "\\", "~~a", "> ", "- ", "|", "| - ",
    "https://", "http://a ", "<", " ", "\t", "#", "# a\n", "- a\n", "  - a\n", "> a\n", "|a|b|\n", "```\n", "\n", "-", "- - ",
    "1. a\n", "* * *\n", "a\n-", "*a **b ", "<br>", "((((", "[a](https://x.example/"];
  let runs = "";
  for (let length = 1; runs.length < 100000; ++length) runs += `${"`".repeat(length)} `;
  if (show(runs).textContent.length < 100000) return "runs of marks are lost";
  const nested = unsafe(show("*a **b ".repeat(10000) + "b** a*".repeat(10000)));
  if (nested) return nested;
  const row = "|a".repeat(10000);
  if (show(`${row}\n${"|-".repeat(10000)}\n${row}\n${row}`).querySelectorAll("td").length > 200) return "a wide table";
  for (const unit of units) {
    for (const [before, after] of [["", ""], ["- |a|\n  |-|\n", "x"]]) {
      const text = before + unit.repeat(100000 / unit.length) + after;
      const wrong = unsafe(show(text));
      if (wrong) return `${wrong}: ${JSON.stringify(unit)}`;
    }
  }
  return "";
})()
"""

# A server of its own in the page: its streams say what they are told to, one piece at a time.
PLAYED = r"""
window.asked = [];
const real = window.fetch;
window.play = (pieces, { ends = true } = {}) => {
  window.fetch = async (path, options) => {
    if (options?.method !== "POST") return real(path, options);
    const body = JSON.parse(options.body);
    window.asked.push({ path, body });
    const coder = new TextEncoder();
    const stream = new ReadableStream({ async start(to) {
      options.signal.addEventListener("abort", () => to.error(new DOMException("", "AbortError")));
      for (const piece of pieces) {
        to.enqueue(coder.encode(`data: ${JSON.stringify(piece)}\n\n`));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      if (ends) { to.enqueue(coder.encode("data: [DONE]\n\n")); to.close(); }
    } });
    return new Response(stream, { headers: { "Content-Type": "text/event-stream" } });
  };
};
window.unplay = () => { window.fetch = real; };
window.piece = (delta, finish_reason = null) => ({ choices: [{ delta, finish_reason }] });
"""

DONE = "document.querySelector('#send').getAttribute('aria-label') === 'Send'"
BUSY = "document.querySelector('#send').getAttribute('aria-label') === 'Stop'"
LAST = "document.querySelector('#messages > li:last-child')"


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def equal(found, expected, what):
    check(found == expected, f"{what}\n  expected {expected!r}\n  found    {found!r}")


def ask(page, text):
    page.run("document.querySelector('#input').focus()")
    page.type(text)
    page.press("Enter")


def answers(page):
    return page.run("[...document.querySelectorAll('.assistant > .content')].map((node) => node.innerText)")


def questions(page):
    return page.run("[...document.querySelectorAll('.user > .content')].map((node) => node.innerText)")


def click(page, selector):
    page.run(f"document.querySelector({json.dumps(selector)}).click()")


def set_field(page, name, value):
    page.run(f"""(() => {{ const field = document.querySelector('#settings [name={name}]');
      field.value = {json.dumps(value)}; field.dispatchEvent(new Event("input", {{ bubbles: true }})); }})()""")


def ready(page, condition="document.querySelector('#model').options.length > 0"):
    page.wait(condition)


def check_renderer(page):
    page.run("import('/page/markdown.js').then((module) => { window.renderMarkdown = module.renderMarkdown; })")
    page.run(RENDERER)
    for case in json.loads(CASES.read_text()):
        text = json.dumps(case["text"])
        equal(page.run(f"unsafe(show({text}))"), "", case["name"])
        if case["html"] is not None:
            equal(page.run(f"plain(show({text}))"), case["html"], case["name"])
    equal(page.run(FUZZ), "", "texts by chance")
    equal(page.run(LONG), "", "long lines")
    # As an answer on the page: in the document, where markup would act.
    page.run(PLAYED)
    hostile = "\n\n".join(case["text"] for case in json.loads(CASES.read_text()))
    page.run(f"play([piece({{ reasoning_content: {json.dumps(hostile)} }}), piece({{ content: {json.dumps(hostile)} }}, 'stop')])")
    ask(page, "<script>hit()</script><img src=x onerror=hit()>")
    page.wait(f"{DONE} && {LAST}.querySelector('.content').children.length > 20")
    page.run(f"{LAST}.querySelector('details').open = true")
    page.wait(f"{LAST}.querySelector('details .text').children.length > 20")
    equal(page.run("unsafe(document.querySelector('#messages .content.text'))"), "", "a hostile answer")
    equal(page.run("document.querySelectorAll('#messages :is(script, img, iframe, svg[onload])').length"), 0, "no markup")
    equal(questions(page), ["<script>hit()</script><img src=x onerror=hit()>"], "a question is shown as it is")
    page.run(f"{LAST}.querySelectorAll('a').forEach((link) => link.dispatchEvent(new MouseEvent('mouseover')))")
    equal(page.run("window.wasHit"), None, "nothing of a text runs")
    page.run("unplay()")


def check_played(page):
    click(page, "#new-chat")
    page.run("play([piece({ role: 'assistant' }), piece({ reasoning_content: 'Let me *think*' }), piece({ content: 'It is' })], { ends: false })")
    ask(page, "How?")
    page.wait(f"{LAST}.querySelector('.content').innerText === 'It is'")
    check(page.run(BUSY), "an answer under way can be stopped")
    check(not page.run(f"{LAST}.querySelector('details').open"), "reasoning is folded")
    click(page, f"#messages > li:last-child summary")
    page.wait(f"{LAST}.querySelector('details .text').innerText === 'Let me think'")
    page.press("Escape")
    page.wait(DONE)
    check("stopped" in page.run(f"{LAST}.innerText"), "Escape stops the answer")
    page.run("play([piece({ content: ' **so**' }, 'length')])")
    click(page, "[data-do=again]")
    page.wait(f"{DONE} && {LAST}.querySelector('.content').innerText === 'so'")
    page.run("play([piece({ content: ' more' }, 'stop')])")
    click(page, "[data-do=continue]")
    page.wait(f"{DONE} && {LAST}.querySelector('.content').innerText.endsWith('more')")
    body = page.run("asked.at(-1).body")
    equal([body["messages"][-1], body["continue_final_message"], body["add_generation_prompt"]],
          [{"role": "assistant", "content": " **so**"}, True, False], "an answer that was cut goes on")
    page.run("play([piece({ content: 'lost' })])")
    ask(page, "And?")
    page.wait(f"!{LAST}.querySelector('.error').hidden")
    check("lost" in page.run(f"{LAST}.querySelector('.error').innerText"), "a stream that breaks is an error")
    # Another conversation may be looked at meanwhile; deleted under way, it does not come back.
    click(page, "#new-chat")
    page.run("play([piece({ content: 'slow' })], { ends: false }); window.confirm = () => true")
    ask(page, "Slowly")
    page.wait(f"{LAST}.querySelector('.content').innerText === 'slow'")
    item = "jige.chat." + page.run("location.hash.slice(1)")
    click(page, "#new-chat")
    page.wait(DONE)
    click(page, "#chats .open")
    page.wait(f"{BUSY} && {LAST}.querySelector('.content').innerText === 'slow'")
    click(page, "#chats .delete")
    page.wait("document.querySelectorAll('#messages > li').length === 0")
    page.run("new Promise((resolve) => setTimeout(resolve, 50))")
    equal(page.run(f"localStorage.getItem({json.dumps(item)})"), None, "a conversation deleted under way is gone")
    page.run("unplay()")


def check_chat(page, url):
    page.look(1280, 800)
    ready(page)
    check(page.run("document.activeElement.id") == "input", "one may type at once")
    click(page, "#settings-open")
    for name, value in (("system", "Answer in one word."), ("temperature", "0.7"), ("top_p", "0.9"),
                        ("max_tokens", "20"), ("seed", "7")):
        set_field(page, name, value)
    page.press("Escape")
    ask(page, "Hello")
    page.wait(f"{DONE} && document.querySelector('.figures')?.textContent")
    body = {"messages": [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Hello"}],
            "temperature": 0.7, "top_p": 0.9, "max_tokens": 20, "seed": 7}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    told = json.load(urllib.request.urlopen(request))
    stored = page.run("JSON.parse(localStorage['jige.chat.' + location.hash.slice(1)])")
    equal(stored["messages"][1]["content"], told["choices"][0]["message"]["content"] or "", "the API's answer")
    equal(stored["messages"][1]["usage"]["completion"], told["usage"]["completion_tokens"], "its tokens")
    check(f"{told['usage']['completion_tokens']} token" in page.run(f"{LAST}.innerText"), "they are shown")
    first = answers(page)
    click(page, "[data-do=again]")
    page.wait(f"{BUSY} || {DONE}")
    page.wait(f"{DONE} && {LAST}.querySelector('.figures')?.textContent")
    equal(answers(page), first, "the same seed gives the same answer again")
    page.type("Shifted")
    page.press("Enter", shift=True)
    page.type("line")
    equal(page.run("document.querySelector('#input').value"), "Shifted\nline", "Shift+Enter begins a line")
    page.press("Enter")
    page.wait(f"{DONE} && {LAST}.querySelector('.figures')?.textContent")
    equal(questions(page), ["Hello", "Shifted\nline"], "two turns")
    # Edited, the first question is asked again and what came behind it goes.
    click(page, "[data-do=edit]")
    page.run("document.querySelector('.edit textarea').select()")
    page.type("Goodbye")
    page.press("Enter")
    page.wait(f"{DONE} && document.querySelectorAll('#messages > li').length === 2 && {LAST}.querySelector('.figures').textContent")
    equal(questions(page), ["Goodbye"], "the edited question")
    check("1 running" not in page.run("document.querySelector('#status').innerText"), "nothing runs any more")
    # Kept over a reload, listed, deleted.
    before = answers(page)
    page.reload()
    ready(page)
    equal([questions(page), answers(page)], [["Goodbye"], before], "the conversation is kept")
    equal(page.run("[...document.querySelectorAll('#chats .open')].map((node) => node.innerText)"), ["Goodbye"], "its row")
    click(page, "#new-chat")
    equal(questions(page), [], "a new chat is empty")
    click(page, "#chats .open")
    equal(questions(page), ["Goodbye"], "and the other is still there")
    page.run("window.confirm = () => true")
    click(page, "#chats .delete")
    equal(page.run("[Object.keys(localStorage).filter((item) => item.startsWith('jige.chat')), location.hash]"), [[], ""],
          "a deleted conversation is gone")
    # What is damaged in storage is passed over.
    page.run("localStorage['jige.chat.x'] = '{'; localStorage['jige.chat.y'] = '{\"id\":\"y\",\"messages\":[{}]}';"
             "localStorage['jige.settings'] = 'null'")
    page.reload()
    ready(page)
    equal(page.run("document.querySelectorAll('#chats li').length"), 0, "damaged conversations are not listed")
    names = page.run("[...document.querySelectorAll('button, input, textarea, select')].filter((node) => "
                     "!(node.ariaLabel || node.innerText.trim() || node.labels?.length)).map((node) => node.outerHTML)")
    equal(names, [], "every control has a name")
    # On a phone the list of conversations comes over the page.
    page.look(390, 780)
    page.wait("document.querySelector('#sidebar').inert")
    click(page, "#menu")
    page.wait("document.querySelector('#new-chat').checkVisibility({ visibilityProperty: true }) && "
              "!document.querySelector('#sidebar').inert")
    page.press("Escape")
    page.wait("document.querySelector('#sidebar').inert && document.activeElement.id === 'menu'")
    check(page.run("document.documentElement.scrollWidth") <= 390, "nothing is wider than the phone")
    page.look(1280, 800)


def check_key(page, key):
    page.wait("document.querySelector('#key').open")
    page.type("no-such-key")
    page.press("Enter")
    page.wait("document.querySelector('#key').open && document.querySelector('#key-title').innerText.startsWith('That is not')")
    page.type(key)
    page.press("Enter")
    ready(page)
    ask(page, "Hello")
    page.wait(f"{DONE} && {LAST}?.querySelector('.figures')?.textContent")
    check(page.run(f"{LAST}.querySelector('.error').hidden"), "it answers with the key")
    check(key not in page.run("JSON.stringify(localStorage)"), "the key is not kept")
    page.reload()
    ready(page)
    check(not page.run("document.querySelector('#key').open"), "it is known until the tab is closed")


def check_plain(page):
    ready(page, "!document.querySelector('#notice').hidden")
    check("no chat template" in page.run("document.querySelector('#notice').innerText"), "a note says what it does")
    ask(page, "A small story")
    page.wait(f"{DONE} && {LAST}?.querySelector('.figures')?.textContent")
    check(page.run(f"{LAST}.querySelector('.error').hidden"), "it goes on with the text")


def check_vectors(page):
    ready(page, "!document.querySelector('#notice').hidden")
    check("/v1/embeddings" in page.run("document.querySelector('#notice').innerText"), "a note says what it serves")
    check(page.run("document.querySelector('#input').disabled"), "there is nothing to ask")


def check_images(page, path):
    ready(page)
    page.wait("!document.querySelector('#attach').hidden")
    click(page, "#settings-open")
    set_field(page, "max_tokens", "4")
    page.press("Escape")
    data = base64.b64encode(pathlib.Path(path).read_bytes()).decode()
    page.run(f"""(() => {{ const all = new DataTransfer();
      const bytes = Uint8Array.from(atob({json.dumps(data)}), (letter) => letter.charCodeAt(0));
      all.items.add(new File([bytes], "a.gif", {{ type: "image/gif" }}));
      all.items.add(new File(["no"], "a.txt", {{ type: "text/plain" }}));
      window.pictures = all; }})()""")
    drop = "document.body.dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: pictures }))"
    page.run(drop)
    page.wait("document.querySelectorAll('#attached img').length === 1")
    page.wait("document.querySelector('#attached img').naturalWidth === 80")
    click(page, "#attached button")
    equal(page.run("document.querySelector('#attached').hidden"), True, "an image can be removed")
    page.run("(() => { const field = document.querySelector('#files'); field.files = pictures.files; "
             "field.dispatchEvent(new Event('change')); })()")
    page.wait("document.querySelectorAll('#attached img').length === 1")
    page.run(PLAYED)
    page.run("play([piece({ content: 'a cat' }, 'stop')])")
    ask(page, "What is it?")
    page.wait(f"{DONE} && {LAST}.querySelector('.content').innerText === 'a cat'")
    url = "data:image/gif;base64," + data
    equal(page.run("asked.at(-1).body.messages"),
          [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}},
                                        {"type": "text", "text": "What is it?"}]}], "what is sent")
    equal(page.run("document.querySelector('#attached').hidden"), True, "the next message has none of it")
    page.run("unplay()")
    page.reload()
    ready(page)
    page.wait("document.querySelector('.user .images img')?.naturalWidth === 80")
    ask(page, "And now?")
    page.wait(f"{DONE} && document.querySelectorAll('#messages > li').length === 4 && {LAST}.querySelector('.figures').textContent")
    check(page.run(f"{LAST}.querySelector('.error').hidden"), "the server reads it")
    # Where there is no room for the image the conversation is kept without.
    page.run("""(() => { const set = Storage.prototype.setItem; Storage.prototype.setItem = function (name, text) {
      if (text.includes("data:image")) throw new DOMException("", "QuotaExceededError");
      set.call(this, name, text); }; })()""")
    ask(page, "So?")
    page.wait(f"{DONE} && document.querySelectorAll('#messages > li').length === 6 && {LAST}.querySelector('.figures').textContent")
    equal(page.run("document.querySelector('#notice').hidden"), True, "it is kept")
    page.reload()
    ready(page)
    page.wait("document.querySelectorAll('#messages > li').length === 6")
    equal(page.run("document.querySelectorAll('.user .images img').length"), 0, "without its image")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chat", required=True)
    parser.add_argument("--key", nargs=2, required=True)
    parser.add_argument("--plain", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--images", nargs=2, required=True)
    urls = parser.parse_args()
    with Browser() as browser:
        try:
            browser.send("Browser.getVersion")
        except OSError as error:
            print(error)
            sys.exit(77)
        page = browser.open(urls.chat + "/")
        check_chat(page, urls.chat)
        check_renderer(page)
        check_played(page)
        equal(page.complaints(), [], "the browser complains of nothing")
        page.go(urls.key[0] + "/")
        check_key(page, urls.key[1])
        page.go(urls.plain + "/")
        check_plain(page)
        page.go(urls.vectors + "/")
        check_vectors(page)
        page.go(urls.images[0] + "/")
        check_images(page, urls.images[1])
        # The refusals without and with a wrong key are the only ones.
        others = [text for text in page.complaints() if "401" not in text]
        equal(others, [], "the browser complains of nothing")


main()
