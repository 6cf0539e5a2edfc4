"""A transformers.Trainer whose steps are the iterations, by a callback.

`perfsweep.trainer.Marks` ends an iteration with each of the trainer's steps. A step may be several batches:
here it adds up the gradients of two. For Lightning there is `perfsweep.lightning.Marks`.

    perfsweep script trainer_marks.py -- --output_dir={scratch}
    perfsweep sweep workload=script workload.path=trainer_marks.py 'workload.args=--output_dir={scratch}' \\
        sweep=quick axes.amp=[bf16]

`{scratch}` is a folder of the trial that is removed after it. The script needs transformers and accelerate.
It also runs by itself: python trainer_marks.py --max_steps=20
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from perfsweep.trainer import Marks

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", default="out")
parser.add_argument("--max_steps", type=int, default=1000)
arguments = parser.parse_args()


class Tokens(Dataset):
    """Rows of random tokens, in place of your text."""

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
    max_steps=arguments.max_steps,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    logging_steps=100,
)
Trainer(model, training, train_dataset=Tokens(), callbacks=[Marks()]).train()
