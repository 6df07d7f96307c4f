"""What an application does with the OpenAI SDK, against a gateway: DENV_GATEWAY, DENV_API_KEY, model `smollm2`."""

import os

from openai import AuthenticationError, NotFoundError, OpenAI

BASE = os.environ["DENV_GATEWAY"] + "/v1"
MESSAGES = [{"role": "user", "content": "Say hello"}]

client = OpenAI(base_url=BASE, api_key=os.environ["DENV_API_KEY"], max_retries=0)
assert [model.id for model in client.models.list()] == ["smollm2"]

whole = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=8)
assert whole.choices[0].message.content, whole
assert whole.usage.completion_tokens > 0, whole

# Usage comes only to those who ask for it, though denv always asks the engine.
chunks = list(client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=8, stream=True))
assert all(chunk.choices and chunk.usage is None for chunk in chunks), chunks
assert chunks[-1].choices[0].finish_reason, chunks
asked = {"include_usage": True}
chunks = list(
    client.chat.completions.create(
        model="smollm2", messages=MESSAGES, max_tokens=8, stream=True, stream_options=asked
    )
)
assert chunks[-1].usage.completion_tokens > 0, chunks

try:
    client.chat.completions.create(model="another", messages=MESSAGES)
    raise SystemExit("a model that is not served was answered")
except NotFoundError as error:
    assert "another" in error.message, error
try:
    OpenAI(base_url=BASE, api_key="sk-denv-wrong", max_retries=0).models.list()
    raise SystemExit("a wrong key was taken")
except AuthenticationError as error:
    assert "sk-denv-wrong" not in error.message, error
print("the SDK is content")
