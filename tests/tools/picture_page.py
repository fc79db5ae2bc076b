"""Makes the picture of the page that the README shows, from a conversation with a running `jige serve`.

    ./quickstart.sh && build/release/jige serve runs/quickstart/model &
    python tests/tools/picture_page.py http://127.0.0.1:8000 docs/images/page.png

With --dark and --phone it looks as they do. Needs Chromium, nothing else; fonts are those of the machine.
"""

import argparse

from browser import Browser

OTHERS = ["What is the capital of Kenya?", "Which month comes after July?", "How much is 8 and 9?"]
QUESTIONS = ["Can you tell a story about a horse and a fox?"]

ANSWERED = """document.querySelector('#send').getAttribute('aria-label') === 'Send' &&
    document.querySelectorAll('.figures:not(:empty)').length === %d"""


def ask(page, text, count):
    page.run("document.querySelector('#input').focus()")
    page.type(text)
    page.press("Enter")
    page.wait(ANSWERED % count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("picture")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--phone", action="store_true")
    wanted = parser.parse_args()
    with Browser() as browser:
        page = browser.open(wanted.url + "/")
        page.look(1040, 520, dark=wanted.dark)
        page.wait("document.querySelector('#model').options.length > 0")
        page.run("localStorage['jige.settings'] = JSON.stringify({ seed: '3' })")
        for question in OTHERS:
            page.run("document.querySelector('#new-chat').click()")
            ask(page, question, 1)
        page.run("document.querySelector('#new-chat').click()")
        for count, question in enumerate(QUESTIONS, 1):
            ask(page, question, count)
        if wanted.phone:
            page.look(390, 780, scale=2, dark=wanted.dark, touch=True)
        page.wait("document.querySelector('#status').innerText === 'idle'")
        page.picture(wanted.picture)


main()
