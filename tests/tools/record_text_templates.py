"""Records what transformers renders for chat templates (part of record_text.py).

tests/fixtures/text/templates/NAME/template.jinja are inputs, with the structure of the families they
are named after; to add one, make a folder with a template and run this. The cases below go through
every template into NAME/cases.jsonl: a conversation with options, and the text or "error" that comes
out. "spans" are the byte ranges of {% generation %} blocks. template_language/cases.jsonl holds the
small templates of record_text_snippets.py, one feature of the language each.
"""

import json
import os

from record_text_snippets import SNIPPETS
from transformers.utils import chat_template_utils

U, A, S, T = "user", "assistant", "system", "tool"


def talk(*turns):
    return [{"role": role, "content": content} for role, content in turns]


def call(name, arguments, call_id="abcdefghi"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a \"city\" \u2014 caf\u00e9",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City & <country>"},
                    "days": {"type": "integer"},
                    "units": {"type": "string", "enum": ["metric", "imperial"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "scale": {"type": ["number", "null"]},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}},
]

TOOL_TALK = [
    {"role": U, "content": "Weather in Oslo?"},
    {"role": A, "content": None, "tool_calls": [call("get_weather", {"city": "Oslo", "days": 2})]},
    {"role": T, "content": "{\"t\": 3.5}", "tool_call_id": "abcdefghi"},
    {"role": A, "content": "It is 3.5 degrees."},
    {"role": U, "content": "Thanks"},
]

TWO_CALLS = [
    {"role": U, "content": "q"},
    {"role": A, "content": "", "tool_calls": [call("search", {"query": "x y"}), call("stop", {})]},
    {"role": T, "content": "r1", "tool_call_id": "abcdefghi"},
    {"role": T, "content": "r2", "tool_call_id": "abcdefghi"},
]

IMAGE = {"type": "image"}


def part(text):
    return {"type": "text", "text": text}


CASES = [
    {"messages": talk((U, "Hello"))},
    {"messages": talk((U, "Hello")), "add_generation_prompt": True},
    {"messages": talk((S, "Be kind."), (U, " Hi \n"), (A, " Yes? "), (U, "2+2?"))},
    {"messages": talk((S, "Be kind."), (U, "Hi"), (A, "Yes?"), (U, "2+2?")),
     "add_generation_prompt": True},
    {"messages": talk((U, "a"), (A, "b"), (U, "c"), (A, "<think>\nhm\n</think>\n\nd"))},
    {"messages": talk((U, "\u732b \U0001f600 <|im_end|> {{ x }} {% y %}"), (A, "ok\n\n"))},
    {"messages": talk((A, "first")), "add_generation_prompt": True},
    {"messages": talk((U, "a"), (U, "b"))},
    {"messages": talk((U, ""))},
    {"messages": TOOL_TALK, "tools": TOOLS, "add_generation_prompt": True},
    {"messages": TOOL_TALK[:3], "tools": TOOLS},
    {"messages": talk((S, "S"), (U, "u")), "tools": TOOLS[:1], "add_generation_prompt": True},
    {"messages": talk((U, "u"), (A, "x")), "add_generation_prompt": True,
     "variables": {"enable_thinking": False, "date_string": "1 May 2025"}},
    {"messages": talk((U, "u")), "tools": TOOLS,
     "variables": {"tools_in_user_message": False, "builtin_tools": ["code_interpreter", "search"]}},
    {"messages": TWO_CALLS, "variables": {"builtin_tools": ["search"]}, "add_generation_prompt": True},
    {"messages": TWO_CALLS[:1] + [{**TWO_CALLS[1], "tool_calls": TWO_CALLS[1]["tool_calls"][:1]}],
     "variables": {"builtin_tools": ["search"]}},
    {"messages": [{"role": U, "content": [{"type": "text", "text": " look "}, {"type": "image"}]}]},
    {"messages": [{"role": U, "content": "q"},
                  {"role": A, "content": "a", "reasoning_content": "because\n"}]},
    {"messages": [{"role": U, "content": "q"}, {"role": A, "content": "a", "reasoning": "why"}]},
    {"messages": talk((U, "u"), (A, "x")), "bos_token": "", "eos_token": ""},
    {"messages": talk((S, "Look."), (U, [IMAGE, part("Both: "), IMAGE, part("?")])),
     "add_generation_prompt": True, "variables": {"add_vision_id": True}},
    {"messages": talk((U, [part("[IMG] "), IMAGE]), (A, "a cat"), (U, "Sure?")),
     "add_generation_prompt": True},
    {"messages": talk((U, [IMAGE, {"type": "audio"}]))},
]


def render(template, case):
    """The case with its "text" and "spans", or with "error"."""
    case = dict(case)
    case.setdefault("bos_token", "<s>")
    case.setdefault("eos_token", "</s>")
    variables = {key: case[key] for key in ("bos_token", "eos_token") if case[key]}
    variables.update(case.get("variables", {}))
    messages = [{k: v for k, v in m.items() if v is not None} for m in case["messages"]]
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [messages], tools=case.get("tools"), chat_template=template,
            return_assistant_tokens_mask="generation %}" in template,
            add_generation_prompt=case.get("add_generation_prompt", False), **variables)
    except Exception as error:  # noqa: BLE001
        case["error"] = f"{type(error).__name__}: {error}"[:200]
        return case
    case["text"] = texts[0]
    if spans:
        places = [len(texts[0][:place].encode()) for span in spans[0] for place in span]
        case["spans"] = [list(pair) for pair in zip(places[::2], places[1::2])]
    return case


def record_language(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "cases.jsonl"), "w", encoding="utf-8") as file:
        for template, variables in SNIPPETS:
            row = {"template": template}
            if variables:
                row["variables"] = variables
            try:
                row["text"] = chat_template_utils._compile_jinja_template(template).render(**variables)
            except Exception as error:  # noqa: BLE001
                row["error"] = f"{type(error).__name__}: {error}"[:200]
            file.write(json.dumps(row) + "\n")


def record(root):
    for name in sorted(os.listdir(root)):
        folder = os.path.join(root, name)
        with open(os.path.join(folder, "template.jinja"), encoding="utf-8") as file:
            template = file.read()
        with open(os.path.join(folder, "cases.jsonl"), "w", encoding="utf-8") as file:
            for case in CASES:
                file.write(json.dumps(render(template, case)) + "\n")
    record_language(os.path.join(os.path.dirname(root), "template_language"))
