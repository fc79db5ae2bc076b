"""Talks to a running `jige serve` with the official Anthropic client, as its users do.

    python tests/tools/check_anthropic_client.py http://127.0.0.1:8000 [--reasoning | --image FILE]

With --reasoning the model's template must let it reason at "enable_thinking", with --image it must
read images, and is sent this file. Ends with 0 when everything is as the client expects it.
"""

import base64
import mimetypes
import sys

import anthropic

PAINT = {"type": "object", "properties": {"colour": {"enum": ["red", "golden"]}},
         "required": ["colour"], "additionalProperties": False}
TOOL = {"name": "paint", "description": "Paints.", "input_schema": PAINT}


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def check_messages(client, model):
    arguments = dict(model=model, max_tokens=10, system=[{"type": "text", "text": "Be brief."}],
                     messages=[{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
                     extra_body={"temperature": 1.0, "top_k": 40, "ignore_eos": True, "seed": 2})
    answer = client.messages.create(**arguments)
    check(answer.role == "assistant" and answer.type == "message", "the assistant answers")
    check(answer.stop_reason == "max_tokens", "the answer ends by its length")
    check(answer.usage.output_tokens == 10, "all tokens are counted")
    text = answer.content[0].text
    with client.messages.stream(**arguments) as stream:
        check("".join(stream.text_stream) == text, "the stream brings the same text")
        final = stream.get_final_message()
    check(final.content[0].text == text, "its pieces make the message")
    check(final.stop_reason == "max_tokens", "its end tells what ended it")
    check(final.usage.output_tokens == 10, "and has the usage")
    counted = client.messages.count_tokens(model=model, system=arguments["system"],
                                           messages=arguments["messages"])
    usage = answer.usage
    check(counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens,
          "tokens can be counted before")
    stop = text[3:5]
    stopped = client.messages.create(**arguments, stop_sequences=[stop])
    check(stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop,
          "a stop text ends the answer")
    check("".join(block.text for block in stopped.content) == text[:text.index(stop)],
          "and is not in it")
    turns = arguments["messages"] + [{"role": "assistant", "content": answer.content},
                                     {"role": "user", "content": "More"}]
    check(client.messages.create(model=model, max_tokens=3, messages=turns).id,
          "an answer's blocks can be given back")
    with client.messages.stream(**{**arguments, "max_tokens": 200}) as stream:
        for _ in stream.text_stream:
            break  # hangs up


def check_calls(client, model):
    arguments = dict(model=model, max_tokens=60, messages=[{"role": "user", "content": "Mia"}],
                     tools=[TOOL], extra_body={"seed": 1})
    for choice in ({"type": "any", "disable_parallel_tool_use": True},
                   {"type": "tool", "name": "paint"}):
        answer = client.messages.create(**arguments, tool_choice=choice)
        check(answer.stop_reason == "tool_use", "a forced call ends the answer")
        call = answer.content[-1]
        check((call.type, call.name) == ("tool_use", "paint"), "the call names the tool")
        check(call.input["colour"] in ("red", "golden"), "its input fits")
        with client.messages.stream(**arguments, tool_choice=choice) as stream:
            final = stream.get_final_message()
        check(final.content[-1].input == call.input, "the stream brings the same call")
    turns = arguments["messages"] + [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                      "content": "done"}, {"type": "text", "text": "Well?"}]}]
    given = client.messages.create(**{**arguments, "messages": turns, "max_tokens": 5})
    check(given.usage.input_tokens + given.usage.cache_read_input_tokens
          > answer.usage.input_tokens + answer.usage.cache_read_input_tokens,
          "what came of it is given back")


def check_schema(client, model):
    answer = client.messages.create(
        model=model, max_tokens=60, messages=[{"role": "user", "content": "Mia"}],
        output_config={"format": {"type": "json_schema", "schema": PAINT}})
    check(answer.stop_reason == "end_turn", "the answer ends where its schema ends")
    check("colour" in answer.content[0].text, "it fits the schema")


def check_errors(client, model):
    hello = [{"role": "user", "content": "a"}]
    image = [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": ""}}]}]
    refused = [("temperature", dict(extra_body={"temperature": 9})),
               ("messages[0].content[0].type", dict(messages=image)),
               ("tools[0].type", dict(tools=[{"type": "web_search_20250305",
                                              "name": "web_search"}])),
               ("thinking.type", dict(thinking={"type": "deep"}))]
    for field, more in refused:
        try:
            client.messages.create(**{"model": model, "max_tokens": 3, "messages": hello, **more})
            check(False, f"{field} is refused")
        except anthropic.BadRequestError as error:
            body = error.body
            check(body["type"] == "error" and body["error"]["type"] == "invalid_request_error",
                  "the error has its form")
            check(body["error"]["message"].startswith(field), f"the error names {field}")
    try:
        client.messages.create(model="other", max_tokens=3, messages=hello)
        check(False, "another model is refused")
    except anthropic.NotFoundError as error:
        check(error.body["error"]["type"] == "not_found_error", "the error has its type")


def check_thinking(client, model):
    arguments = dict(model=model, max_tokens=1100, messages=[{"role": "user", "content": "Mia"}],
                     extra_body={"seed": 1, "max_tokens": 10})
    asked = dict(thinking={"type": "enabled", "budget_tokens": 1024})
    answer = client.messages.create(**arguments, **asked)
    block = answer.content[0]
    check(block.type == "thinking" and block.thinking, "thinking is a block of its own")
    with client.messages.stream(**arguments, **asked) as stream:
        final = stream.get_final_message()
    check(final.content[0].thinking == block.thinking, "the stream brings the same thinking")
    silent = client.messages.create(**arguments)
    check(all(block.type == "text" for block in silent.content), "none comes unasked")


def check_image(client, model, path):
    with open(path, "rb") as file:
        data = base64.standard_b64encode(file.read()).decode("utf-8")
    source = {"type": "base64", "media_type": mimetypes.guess_type(path)[0], "data": data}
    messages = [{"role": "user", "content": [{"type": "image", "source": source},
                                             {"type": "text", "text": "What is it?"}]}]
    count = client.messages.count_tokens(model=model, messages=messages).input_tokens
    answer = client.messages.create(model=model, max_tokens=6, messages=messages)
    usage = answer.usage
    check(usage.input_tokens + usage.cache_read_input_tokens == count, "the image is counted")
    again = client.messages.create(model=model, max_tokens=6, messages=messages)
    check(again.usage.cache_read_input_tokens > 0, "the image is known again")
    try:
        source = {"type": "url", "url": "https://example.com/a.png"}
        client.messages.create(model=model, max_tokens=6, messages=[
            {"role": "user", "content": [{"type": "image", "source": source}]}])
        check(False, "a URL of the network is refused")
    except anthropic.BadRequestError as error:
        check("nothing is downloaded" in error.body["error"]["message"], "the error says why")


def main():
    client = anthropic.Anthropic(base_url=sys.argv[1], api_key="a-key-of-tests", max_retries=0)
    model = client.models.list().data[0].id
    if "--image" in sys.argv:
        check_image(client, model, sys.argv[sys.argv.index("--image") + 1])
        return print("the official client works")
    check_messages(client, model)
    check_calls(client, model)
    check_schema(client, model)
    check_errors(client, model)
    if "--reasoning" in sys.argv:
        check_thinking(client, model)
    print("the official client works")


if __name__ == "__main__":
    main()
