"""Asks for streams whose first event is long in coming, with the official clients of OpenAI and
Anthropic: through `jige route`, from a running `jige serve` that is asked eleven seconds late.

    python tests/tools/check_late_streams.py http://127.0.0.1:8000 JIGE

By then the router has begun the streams with comments, which clients must pass over; what fails
behind them must be an error to them. Ends with 0 when everything is as the clients expect it.
"""

import http.server
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import anthropic
import openai

LATE_S = 11
BREAKS = "This one breaks."


class LateServer(http.server.BaseHTTPRequestHandler):
    """What the server says, late where it is a stream; an error of its own where it is to break."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.pass_on(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(LATE_S)
        if BREAKS.encode() not in body:
            return self.pass_on(body)
        error = {"type": "server_error", "message": "it broke"}
        if self.path == "/v1/messages":
            error = {"type": "api_error", "message": "it broke"}
        self.say(500, "application/json", json.dumps({"type": "error", "error": error}).encode())

    def pass_on(self, body):
        request = urllib.request.Request(sys.argv[1] + self.path, body,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                self.say(answer.status, answer.headers["Content-Type"], answer.read())
        except urllib.error.HTTPError as error:
            self.say(error.code, error.headers["Content-Type"], error.read())

    def say(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def completion(gpt, claude, prompt):
    stream = gpt.completions.create(model="tiny", prompt=prompt, max_tokens=8, stream=True,
                                    extra_body={"ignore_eos": True})
    return "".join(piece.choices[0].text for piece in stream)


def chat(gpt, claude, prompt):
    stream = gpt.chat.completions.create(model="tiny", max_tokens=8, stream=True,
                                         messages=[{"role": "user", "content": prompt}],
                                         extra_body={"ignore_eos": True})
    return "".join(piece.choices[0].delta.content or "" for piece in stream)


def response(gpt, claude, prompt):
    text = ""
    for event in gpt.responses.create(model="tiny", input=prompt, max_output_tokens=16,
                                      stream=True, extra_body={"ignore_eos": True}):
        if event.type == "error":
            raise openai.APIError(event.message, None, body=None)
        if event.type == "response.output_text.delta":
            text += event.delta
    return text


def message(gpt, claude, prompt):
    with claude.messages.stream(model="tiny", max_tokens=8,
                                messages=[{"role": "user", "content": prompt}],
                                extra_body={"ignore_eos": True}) as stream:
        return "".join(stream.text_stream)


def bare(url):
    """Without a client: the head and a comment are there before the server has said anything."""
    body = json.dumps({"model": "tiny", "prompt": "A small story", "stream": True})
    begin = time.monotonic()
    with urllib.request.urlopen(urllib.request.Request(
            url + "/v1/completions", body.encode(), {"Content-Type": "application/json"})) as answer:
        first = answer.read(3)
        took = time.monotonic() - begin
        answer.read()
        return None if first == b":\n\n" and took < LATE_S else f"{first!r} after {took:.1f} s"


def check(url, ask, prompt):
    """What is wrong with the answer; nothing where it is as it should be."""
    if not ask:
        return bare(url)
    gpt = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    begin = time.monotonic()
    try:
        text = ask(gpt, claude, prompt)
    except (openai.APIError, anthropic.APIError) as error:
        return None if prompt == BREAKS and "it broke" in str(error) else repr(error)
    good = text and prompt != BREAKS and time.monotonic() - begin >= LATE_S
    return None if good else f"the text {text!r}"


def guarded(url, ask, prompt, failures):
    try:
        failure = check(url, ask, prompt)
    except Exception as error:  # whatever it is, it is a failure
        failure = repr(error)
    if failure:
        name = ask.__name__ if ask else "without a client"
        failures.append(f"{name}, {prompt!r}: {failure}")


def main():
    late = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LateServer)
    threading.Thread(target=late.serve_forever, daemon=True).start()
    router = subprocess.Popen([sys.argv[2], "route", "--port", "0", "--to",
                               f"http://127.0.0.1:{late.server_port}"],
                              stdout=subprocess.PIPE, text=True)
    failures = []
    try:
        url = re.search("http://[0-9.:]+", router.stdout.readline())[0]
        while b'"ok"' not in health(url):
            time.sleep(0.05)
        threads = [threading.Thread(target=guarded, args=(url, ask, prompt, failures))
                   for ask in (completion, chat, response, message)
                   for prompt in ("A small story", BREAKS)]
        threads.append(threading.Thread(target=guarded, args=(url, None, "", failures)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        router.terminate()
        router.wait()
    if failures:
        sys.exit("failed: " + "; ".join(failures))


def health(url):
    try:
        return urllib.request.urlopen(url + "/health").read()
    except urllib.error.HTTPError as error:
        return error.read()


if __name__ == "__main__":
    main()
