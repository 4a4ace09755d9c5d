"""radmoe-agent: one patch out of N finished trajectories of a coding agent.

trajectory.py      requests and answers of an agent become one rollout with steps
conversation.py    chat messages to token ids, so that tokens the model sampled are never tokenised again
responder.py       who answers an agent's requests: an engine whose batch all agents share, or a script
mini.py            mini-swe-agent, and the model that it drives
harmony/           the Harmony harness: see its own list
session.py         commands, such as an agent's bash or git, in the confinement of `radmoe.sandbox`, with a work tree of their own
session_helper.py  the helper process of a session
confined.py        where an agent's commands run: a session, as an environment of mini-swe-agent
instances.py       what is to be solved: a folder with issues and repositories
candidates.py      what is known of each finished trajectory: its patch, how it ended, what is wrong with it
run.py             N trajectories of every instance by either harness, with their routing, into run directories and a pool
importer.py        routing for trajectories that exist already, of whatever model class
patches.py         the selection, `preds.json`, and a record of every decision
defaults.py        what the command line shows as its defaults
commands/          `radmoe agent run`, `import` and `select`

Nothing here reads a verdict: those are grading's, and an import contract holds the two apart.
"""
