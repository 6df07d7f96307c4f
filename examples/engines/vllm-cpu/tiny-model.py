"""tiny-model.py DIR: a Llama of random weights with a tokenizer of its own, made in seconds and the same each time."""

import json
import pathlib
import random
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

MARKS = ["<|end|>", "<|turn|>", "<|pad|>"]
TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}: {{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant: {% endif %}"
)


def words(seed: int, count: int) -> str:
    chooser = random.Random(seed)
    return " ".join("".join(chooser.choices("abcdefghijklmnopqrstuvwxyz", k=4)) for _ in range(count))


out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=1024, special_tokens=MARKS, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
)
tokenizer.train_from_iterator((words(seed, 50) for seed in range(2000)), trainer)
tokenizer.save(str(out / "tokenizer.json"))
settings = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|end|>",
    "eos_token": "<|end|>",
    "pad_token": "<|pad|>",
    "model_max_length": 4096,
    "clean_up_tokenization_spaces": False,
    "chat_template": TEMPLATE,
}
(out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
end, pad = (tokenizer.token_to_id(mark) for mark in ("<|end|>", "<|pad|>"))
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=1024,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=4096,
    tie_word_embeddings=False,
    bos_token_id=end,
    eos_token_id=end,
    pad_token_id=pad,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out, safe_serialization=True)
