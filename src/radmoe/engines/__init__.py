"""Where rollouts come from. An engine samples completions and hands each over with its routing.

base.py           what every engine is asked for and hands back: sampling settings, completions
prompts.py        a JSONL file of prompts, and prompts to token ids
transformers.py   any local Hugging Face MoE checkpoint: loading, checks, generation, teacher forcing
routers.py        finding a model's routers, and recording what they chose (torch)
rows.py           a cache whose rows have lengths of their own, and attention over it (torch)
streams.py        several batches side by side, on small models
decode.py         the batch that samples: rows step together, start and finish apart (torch)
llamacpp.py       GGUF MoE models through llama.cpp: loading, checks, generation
llama_api.py      llama.cpp's C API through ctypes; llama_rows.py its batch, and the callback that sees routing
gguf_tokenizer.py the tokenizer and chat template of a GGUF file
draw.py           decode.py's sampling in NumPy
http/             running vLLM and SGLang servers
checkpoint.py     what a model's directory says without its weights
replay.py         routing for rollouts that exist as tokens or texts; replay_sources.py reads them
doctor/           is the routing an engine hands over that of its tokens
vllm.py           vLLM in this process, stock or with the plugin; vllm_outputs.py: its answers as rollouts
vllm_plugin/      what runs inside vLLM, also `vllm serve`: routing with weights, through vLLM's own entry points

Nothing here is imported until an engine is used.
"""
