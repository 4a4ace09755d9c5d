"""The Harmony harness, for gpt-oss and every model whose vocabulary has Harmony's tokens.

agent.py         a trajectory: request, step, the tool's answer, and so on to its end
prompts.py       what a model is told before its first step
steps.py         what a model sampled as one step
messages.py      messages to token ids and back, for any vocabulary with Harmony's tokens
openai.py        the same by openai-harmony, for gpt-oss's vocabulary
tools.py         the tools as a model sees them, and what they answer
repository.py    the work tree in which they work
apply_patch.py   the format of the tool apply_patch
transcripts.py   finished trajectories in other programs' files, for `radmoe agent import`
"""
