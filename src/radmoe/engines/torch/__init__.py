"""Any local Hugging Face MoE checkpoint, run with torch.

engine.py    loading, checks, generation, teacher forcing
routers.py   finding a model's routers, and recording what they chose
decode.py    the batch that samples: rows step together, start and finish apart
batcher.py   requests that come one by one and share a batch
force.py     passes over given continuations of one prompt
kv_cache.py  a cache whose rows have lengths of their own, and attention over it
topk.py      the largest log-probabilities of every row in a single pass

What only pays for models as small as the lab's is radmoe-lab's, `radmoe_lab.inference`.
"""
