"""Everything that chooses a rollout. Nothing here reads a label, and nothing but `overlap` and `closing` a text.

vocab -> closing, anchors    where a marker stands and where an answer ends, in token ids
layers, routes, readout      which rows of routing are read at an anchor, and the route vector of each rollout
kernels/                     similarity between route vectors, and density under it
confidence, overlap          what log-probabilities and the answers' text say, for the presets that use them
kinds, presets               how each kind of answer is read by default, and named combinations of settings
selector                     the choice: `select`, `select_many`, `medoid`
online                       the same while rollouts arrive, and when to stop
certainty, calibrations/     how probable it is that a pick is right
regime                       which method to use on a group, from what it shows without labels
"""
