"""The explorer: a page that shows problems and their rollouts, as one file or live from a server.

blocks.py    the format: a header and typed arrays, compressed
texts.py     tokens, log-probabilities, and what is left out of long texts
layout.py    the order of a matrix and the places on a map
wording.py   why a rollout was picked, in a sentence
views.py     a problem under one readout
problem.py   a problem as a block
index.py     what a page holds, as a block
page.py      script, style, security policy; one file, or a page that a server shows live
web/         the script's parts and the style

It reads what it is given and never an answer: labels come in as data.
"""

from radmoe.explorer.index import encode_index
from radmoe.explorer.page import Assets, assets, live_page, page, policy, server_page
from radmoe.explorer.problem import EncodedProblem, Verdicts, encode_problem
from radmoe.explorer.views import usual_settings

__all__ = [
    "Assets", "EncodedProblem", "Verdicts", "assets", "encode_index", "encode_problem", "live_page", "page", "policy",
    "server_page", "usual_settings",
]  # fmt: skip
