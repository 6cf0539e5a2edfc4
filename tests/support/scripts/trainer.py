"""A transformers.Trainer over a tiny language model."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", default="out")
arguments = parser.parse_args()


class Tokens(Dataset):
    """Rows of random tokens."""

    def __len__(self):
        return 256

    def __getitem__(self, row):
        tokens = torch.randint(64, (16,), generator=torch.Generator().manual_seed(row))
        return {"input_ids": tokens, "labels": tokens}


model = GPT2LMHeadModel(
    GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
)
training = TrainingArguments(
    arguments.output_dir,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    max_steps=100_000,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    logging_steps=50,
)
Trainer(model, training, train_dataset=Tokens()).train()
