"""vLLM in this process, stock or with the plugin.

engine.py    the offline engine
outputs.py   vLLM's answers as rollouts (`from_vllm`)
checks.py    what is refused before vLLM is started
plugin/      what runs inside vLLM, also inside `vllm serve`: routing with weights
"""
