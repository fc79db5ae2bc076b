"""Talks to a running `jige serve` with the official OpenAI client, as its users do.

    python tests/tools/check_openai_client.py http://127.0.0.1:8000

Ends with 0 when everything is as the client expects it.
"""

import json
import sys

import openai


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def check_models(client):
    models = client.models.list().data
    check(len(models) == 1, "one model is listed")
    check(client.models.retrieve(models[0].id).id == models[0].id, "the model can be retrieved")
    return models[0].id


def check_completions(client, model):
    answer = client.completions.create(model=model, prompt="A small story", max_tokens=12, seed=1,
                                       logprobs=2, extra_body={"ignore_eos": True})
    choice = answer.choices[0]
    check(answer.usage.completion_tokens == 12, "all tokens are counted")
    check(choice.finish_reason == "length", "the answer ends by its length")
    check(len(choice.logprobs.tokens) == 12, "every token has a log-probability")
    stream = client.completions.create(model=model, prompt="A small story", max_tokens=12, seed=1,
                                       stream=True, extra_body={"ignore_eos": True})
    text = "".join(piece.choices[0].text for piece in stream)
    check(text == choice.text, "the stream brings the same text")
    several = client.completions.create(model=model, prompt=["a", "b"], n=2, max_tokens=3)
    check([c.index for c in several.choices] == [0, 1, 2, 3], "choices of prompts are in order")


def check_chat(client, model):
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    arguments = dict(model=model, messages=messages, max_completion_tokens=10, seed=2,
                     extra_body={"ignore_eos": True})
    answer = client.chat.completions.create(**arguments, logprobs=True, top_logprobs=3)
    choice = answer.choices[0]
    check(choice.message.role == "assistant", "the assistant answers")
    check(len(choice.logprobs.content) == 10, "every token has a log-probability")
    check(len(choice.logprobs.content[0].top_logprobs) == 3, "three alternatives are told")
    check(answer.usage.prompt_tokens_details.cached_tokens >= 0, "cached tokens are told")
    stream = client.chat.completions.create(**arguments, stream=True,
                                            stream_options={"include_usage": True})
    text, usage, roles = "", None, []
    for chunk in stream:
        usage = chunk.usage or usage
        for piece in chunk.choices:
            text += piece.delta.content or ""
            if piece.delta.role:
                roles.append(piece.delta.role)
    check(text == choice.message.content, "the stream brings the same text")
    check(roles == ["assistant"], "the role comes once")
    check(usage.completion_tokens == 10, "the last chunk brings the usage")


PAINT = {"type": "object", "properties": {"colour": {"enum": ["red", "golden"]}},
         "required": ["colour"], "additionalProperties": False}


def check_schemas(client, model):
    schema = {"name": "paint", "schema": PAINT, "strict": True}
    for seed in range(3):
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Mia"}], seed=seed,
            max_completion_tokens=60, response_format={"type": "json_schema",
                                                       "json_schema": schema})
        choice = answer.choices[0]
        check(choice.finish_reason == "stop", "the answer ends where its schema ends")
        check(json.loads(choice.message.content)["colour"] in ("red", "golden"),
              "the answer fits its schema")


def check_forced_calls(client, model):
    tools = [{"type": "function", "function": {"name": "paint", "parameters": PAINT}}]
    arguments = dict(model=model, messages=[{"role": "user", "content": "Mia"}], tools=tools,
                     tool_choice="required", parallel_tool_calls=False, seed=1,
                     max_completion_tokens=60)
    choice = client.chat.completions.create(**arguments).choices[0]
    check(choice.finish_reason == "tool_calls", "a forced call ends the answer")
    call = choice.message.tool_calls[0].function
    check(call.name == "paint", "the call names the tool")
    check(json.loads(call.arguments)["colour"] in ("red", "golden"), "its arguments fit")
    name, text = "", ""
    for chunk in client.chat.completions.create(**arguments, stream=True):
        for piece in chunk.choices:
            for part in piece.delta.tool_calls or []:
                name += part.function.name or ""
                text += part.function.arguments or ""
    check((name, text) == (call.name, call.arguments), "the stream brings the same call")


def check_errors(client, model):
    try:
        client.completions.create(model=model, prompt="a", temperature=9)
        check(False, "a temperature of 9 is refused")
    except openai.BadRequestError as error:
        check(error.param == "temperature", "the error names the field")
    try:
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "a"}])
        check(False, "another model is refused")
    except openai.NotFoundError as error:
        check(error.code == "model_not_found", "the error has its code")


def main():
    client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0)
    model = check_models(client)
    check_completions(client, model)
    check_chat(client, model)
    check_schemas(client, model)
    check_forced_calls(client, model)
    check_errors(client, model)
    print("the official client works")


if __name__ == "__main__":
    main()
