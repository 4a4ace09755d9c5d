"""GGUF MoE models through llama.cpp, as the engine llamacpp of radmoe.

engine.py     loading, checks, generation
api.py        llama.cpp's C API through ctypes
batch.py      its batch, and the callback that sees routing
tokenizer.py  the tokenizer and chat template of a GGUF file
draw.py       sampling from logits in NumPy
plugin.py     what makes radmoe find the engine
"""
