"""Any local Hugging Face MoE checkpoint, run with torch.

engine.py         loading, checks, generation, teacher forcing
routers.py        finding a model's routers, and recording what they chose
decode.py         the batch that samples: rows step together, start and finish apart
static_decode.py  the same in tensors of fixed size, whose step is a CUDA graph: small models on a GPU
batcher.py        requests that come one by one and share a batch
force.py          passes over given continuations of one prompt
force_tree.py     the same over a tree of them: small models on a CPU
tree.py           continuations as a tree; tree_layers.py its layers; walks.py which is under way
kv_cache.py       a cache whose rows have lengths of their own, and attention over it
static_cache.py   a cache of fixed size, whose rows each write at a place of their own
dense_experts.py  experts of a small model in three matrix products: on a GPU, and in training
cpu_experts.py    experts of a small model in one kernel: on a CPU
delta_rule.py     one step of linear attention in place
topk.py           the largest log-probabilities of every row in a single pass
row_threads.py    work on rows that threads share
streams.py        several batches side by side, for small models; cores.py the threads that they share
"""
