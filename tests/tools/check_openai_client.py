"""Talks to a running `jige serve` with the official OpenAI client, as its users do.

    python tests/tools/check_openai_client.py http://127.0.0.1:8000 [--reasoning | --embeddings | --image FILE]

With --reasoning the model's template must let it reason at "reasoning_effort", with --embeddings it must be an embedding model, with --image one that reads images, which is sent this file. Ends with 0 when everything is as the client expects it.
"""

import array
import base64
import datetime
import json
import mimetypes
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


def check_calls_beside_schemas(client, model):
    tools = [{"type": "function", "function": {"name": "paint", "parameters": PAINT}}]
    schema = {"name": "day", "schema": {
        "type": "object", "properties": {"day": {"type": "string", "format": "date"}},
        "required": ["day"], "additionalProperties": False}}
    for seed in range(6):
        choice = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Mia"}], seed=seed, tools=tools,
            max_completion_tokens=80, response_format={"type": "json_schema",
                                                       "json_schema": schema}).choices[0]
        if choice.message.tool_calls:
            call = choice.message.tool_calls[0].function
            check(json.loads(call.arguments)["colour"] in ("red", "golden"), "its arguments fit")
        elif choice.finish_reason == "stop":
            datetime.date.fromisoformat(json.loads(choice.message.content)["day"])


def check_responses(client, model):
    arguments = dict(model=model, input="Hello", instructions="Be brief.", max_output_tokens=10,
                     extra_body={"ignore_eos": True, "seed": 2})
    answer = client.responses.create(**arguments)
    check(answer.status == "incomplete", "the answer was cut off")
    check(answer.incomplete_details.reason == "max_output_tokens", "by its length")
    check(answer.usage.output_tokens == 10, "all tokens are counted")
    check(answer.usage.input_tokens_details.cached_tokens >= 0, "cached tokens are told")
    chat = client.chat.completions.create(
        model=model, seed=2, max_completion_tokens=10, extra_body={"ignore_eos": True},
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    check(answer.output_text == chat.choices[0].message.content, "a chat answers the same")
    with client.responses.stream(**arguments) as stream:
        text, numbers = "", []
        for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
    check(text == answer.output_text, "the stream brings the same text")
    check(numbers == list(range(len(numbers))), "events are numbered")
    check(event.type == "response.incomplete", "the last event tells how it ended")
    check(event.response.output_text == text, "and has the whole answer")
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
             *[item.model_dump() for item in answer.output], {"role": "user", "content": "More"}]
    check(client.responses.create(model=model, input=items, max_output_tokens=3).id,
          "an answer's items can be given back")
    with client.responses.stream(**{**arguments, "max_output_tokens": 200}) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                break  # hangs up


def check_responses_logprobs(client, model):
    arguments = dict(model=model, input="Hello", max_output_tokens=12, top_logprobs=3,
                     include=["message.output_text.logprobs"],
                     extra_body={"ignore_eos": True, "seed": 2})
    def shown(logprobs):
        return [(t.token, t.logprob, [(o.token, o.logprob) for o in t.top_logprobs])
                for t in logprobs]
    part = client.responses.create(**arguments).output[-1].content[0]
    tokens = shown(part.logprobs)
    check("".join(token for token, _, _ in tokens).strip() == part.text.strip(),
          "the tokens are those of the text")
    check(all(len(top) == 3 for _, _, top in tokens), "three alternatives are told")
    check(all("\ufffd" in t.token or bytes(t.bytes).decode() == t.token for t in part.logprobs),
          "bytes are told")
    chat = client.chat.completions.create(
        model=model, seed=2, max_completion_tokens=12, extra_body={"ignore_eos": True},
        logprobs=True, top_logprobs=3, messages=[{"role": "user", "content": "Hello"}])
    check(tokens == shown(chat.choices[0].logprobs.content), "a chat tells the same")
    with client.responses.stream(**arguments) as stream:
        deltas, done = [], None
        for event in stream:
            if event.type == "response.output_text.delta":
                deltas += shown(event.logprobs)
            if event.type == "response.output_text.done":
                done = shown(event.logprobs)
    final = event.response.output[-1].content[0]
    check(deltas == tokens, "the deltas bring the same tokens")
    check(done == tokens, "and so does what ends the text")
    check(shown(final.logprobs) == tokens, "and the whole answer")


FLAT_TOOL = {"type": "function", "name": "paint", "parameters": PAINT, "strict": True}


def check_responses_calls(client, model):
    arguments = dict(model=model, input=[{"role": "user", "content": "Mia"}], tools=[FLAT_TOOL],
                     parallel_tool_calls=False, max_output_tokens=60, extra_body={"seed": 1})
    for choice in ("required", {"type": "function", "name": "paint"}):
        answer = client.responses.create(**arguments, tool_choice=choice)
        check(answer.status == "completed", "a forced call ends the answer")
        call = answer.output[-1]
        check((call.type, call.name) == ("function_call", "paint"), "the call names the tool")
        check(json.loads(call.arguments)["colour"] in ("red", "golden"), "its arguments fit")
        with client.responses.stream(**arguments, tool_choice=choice) as stream:
            deltas = "".join(event.delta for event in stream
                             if event.type == "response.function_call_arguments.delta")
            final = stream.get_final_response()
        check(deltas == call.arguments, "the stream brings the same call")
        check(final.output[-1].arguments == call.arguments, "and so does its end")
    items = arguments["input"] + [item.model_dump() for item in answer.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "done"})
    given = client.responses.create(**{**arguments, "input": items, "max_output_tokens": 5})
    check(given.usage.input_tokens > answer.usage.input_tokens, "what came of it is given back")


def check_responses_schema(client, model):
    format = {"type": "json_schema", "name": "paint", "schema": PAINT, "strict": True}
    answer = client.responses.create(model=model, input="Mia", text={"format": format},
                                     max_output_tokens=60)
    check(answer.status == "completed", "the answer ends where its schema ends")
    check(json.loads(answer.output_text)["colour"] in ("red", "golden"), "it fits the schema")


def check_responses_errors(client, model):
    refused = [("previous_response_id", dict(previous_response_id="resp_1")),
               ("background", dict(background=True)),
               ("top_logprobs", dict(top_logprobs=2)),
               ("max_output_tokens", dict(max_output_tokens=0)),
               ("tools[0].type", dict(tools=[{"type": "web_search"}])),
               ("input[0].content[0].type",
                dict(input=[{"role": "user", "content": [{"type": "input_image",
                                                          "image_url": "data:,"}]}]))]
    for param, more in refused:
        try:
            client.responses.create(**{"model": model, "input": "a", **more})
            check(False, f"{param} is refused")
        except openai.BadRequestError as error:
            check(error.param == param, f"the error names {param}, not {error.param}")


def check_reasoning(client, model):
    arguments = dict(model=model, input="Mia", max_output_tokens=10, reasoning={"effort": "high"},
                     extra_body={"seed": 1})
    answer = client.responses.create(**arguments)
    item = answer.output[0]
    check(item.type == "reasoning" and item.content[0].text, "reasoning is an item of its own")
    check(answer.usage.output_tokens_details.reasoning_tokens > 0, "its tokens are counted")
    with client.responses.stream(**arguments) as stream:
        text = "".join(event.delta for event in stream
                       if event.type == "response.reasoning_text.delta")
    check(text == item.content[0].text, "the stream brings the same reasoning")


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


def check_embeddings(client, model):
    answer = client.embeddings.create(model=model, input=["a red kite", "a bell"])
    check([one.index for one in answer.data] == [0, 1], "vectors are in the order of the texts")
    check(answer.usage.prompt_tokens == answer.usage.total_tokens > 0, "tokens are counted")
    # The client asks for base64 by itself, and not where the format is given.
    plain = client.embeddings.create(model=model, input="a red kite", encoding_format="float")
    floats = [array.array("f", one.data[0].embedding) for one in (plain, answer)]
    check(floats[0] == floats[1], "both forms have the same numbers")
    few = client.embeddings.create(model=model, input=[[5, 6, 7]], dimensions=4)
    check(len(few.data[0].embedding) == 4, "a vector has the dimensions that are asked for")
    named = client.embeddings.create(model=model, input="a", extra_body={"prompt": "Query: "})
    check(named.usage.prompt_tokens > 1, "a prompt is counted")
    for arguments, field in [({"input": []}, "input"), ({"input": "a", "dimensions": 99999},
                                                       "dimensions")]:
        try:
            client.embeddings.create(model=model, **arguments)
            check(False, f"a bad {field} is refused")
        except openai.BadRequestError as error:
            check(error.param == field, "the error names the field")
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "a"}])
        check(False, "a chat is refused")
    except openai.BadRequestError as error:
        check(error.code == "embeddings_only", "the error has its code")


def check_image(client, model, path):
    with open(path, "rb") as file:
        data = base64.b64encode(file.read()).decode("utf-8")
    url = f"data:{mimetypes.guess_type(path)[0]};base64,{data}"
    question = {"type": "text", "text": "What is it?"}
    image = {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
    arguments = dict(model=model, max_completion_tokens=6, temperature=0,
                     extra_body={"ignore_eos": True})
    answer = client.chat.completions.create(
        messages=[{"role": "user", "content": [question, image]}], **arguments)
    text = answer.choices[0].message.content
    plain = client.chat.completions.create(
        messages=[{"role": "user", "content": [question]}], **arguments)
    check(answer.usage.prompt_tokens > plain.usage.prompt_tokens + 3, "an image takes tokens")
    check(text != plain.choices[0].message.content, "it changes the answer")
    response = client.responses.create(
        model=model, max_output_tokens=6, temperature=0, extra_body={"ignore_eos": True},
        input=[{"role": "user", "content": [{"type": "input_text", "text": "What is it?"},
                                            {"type": "input_image", "image_url": url}]}])
    check(response.output_text == text, "a response is what a chat is")
    try:
        image["image_url"]["url"] = "https://example.com/a.png"
        client.chat.completions.create(messages=[{"role": "user", "content": [image]}], **arguments)
        check(False, "a URL of the network is refused")
    except openai.BadRequestError as error:
        check(error.param == "messages[0].content[0].image_url.url", "the error names the field")


def main():
    client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=0)
    model = check_models(client)
    if "--embeddings" in sys.argv:
        check_embeddings(client, model)
        return print("the official client works")
    if "--image" in sys.argv:
        check_image(client, model, sys.argv[sys.argv.index("--image") + 1])
        return print("the official client works")
    check_completions(client, model)
    check_chat(client, model)
    check_schemas(client, model)
    check_forced_calls(client, model)
    check_calls_beside_schemas(client, model)
    check_errors(client, model)
    check_responses(client, model)
    check_responses_logprobs(client, model)
    check_responses_calls(client, model)
    check_responses_schema(client, model)
    check_responses_errors(client, model)
    if "--reasoning" in sys.argv:
        check_reasoning(client, model)
    print("the official client works")


if __name__ == "__main__":
    main()
