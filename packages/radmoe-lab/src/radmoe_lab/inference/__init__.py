"""Inference for models as small as the lab's, whose passes are too short to be split among cores or to fill a GPU.

engine.py         `LabEngine`: transformers, with what is below where it applies
cpu_experts.py    experts on a CPU in one pass over the tokens of each; tile.py and exponential.py are its inner loops
dense_experts.py  experts on a GPU in three large matrix products
static_decode.py  batches of one shape on a GPU, so that a step is one CUDA graph; static_cache.py holds their caches
streams.py        several batches side by side on a CPU; cores.py divides torch's threads among them
delta_step.py     one step of linear attention in place; row_threads.py splits its rows among threads, heads.py repeats its heads
force_tree.py     replay of many rollouts of one prompt as a tree of their tokens; tree.py and tree_layers.py are its parts
"""
