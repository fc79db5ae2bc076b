"""A Chromium without a window, driven over the pipe of its DevTools protocol: the standard library is enough.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:8000/")
        page.wait("document.title === 'Jige'")
        print(page.run("document.body.innerText"))
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

WAIT_SECONDS = 60


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="jige-browser-", ignore_cleanup_errors=True)
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        command = [find_chromium(), "--headless=new", "--remote-debugging-pipe", "--disable-gpu",
                   "--no-first-run", "--disable-background-networking", "--disable-extensions",
                   "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.profile.name}",
                   # As with a mouse.
                   "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,"
                   "availablePointerTypes=4"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # it refuses to run as root with one

        # The protocol is spoken over descriptors 3 and 4. Ours are moved away from there first.
        def place():
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup2(reading, 40), os.dup2(writing, 41)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=place, close_fds=False)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.rest = b""
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def receive(self, until):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0, until - time.monotonic()))
            piece = os.read(self.into, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("the browser does not answer")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self.out, left):]
        until = time.monotonic() + WAIT_SECONDS
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, address):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.send(f"{domain}.enable")
        page.go(address)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def go(self, address):
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.run("window.before = true")
        self.send("Page.reload")
        self.wait("document.readyState === 'complete' && !window.before")

    def run(self, script):
        """The value of an expression; promises are waited for."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait(self, condition):
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            try:
                if self.run(condition):
                    return
            except RuntimeError:  # between two documents there is none to ask
                pass
            time.sleep(0.02)
        raise TimeoutError(f"never came: {condition}\n{self.run('document.body.innerText')}")

    def type(self, text):
        self.send("Input.insertText", text=text)

    def press(self, key, shift=False):
        text = {"Enter": "\r"}.get(key, "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, width, height, scale=1, dark=False, touch=False):
        """The size of the window, and what the system asks for."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=touch)
        if touch:
            self.send("Emulation.setTouchEmulationEnabled", enabled=True)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """What the browser has complained of so far: errors of scripts, refusals by the page's policy."""
        found = []
        for event in self.browser.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
        return found
