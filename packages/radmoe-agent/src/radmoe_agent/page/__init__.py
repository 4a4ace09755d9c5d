"""The page of `radmoe agent select`: which patch of every issue was picked, from which, and why.

encode.py     an issue as a block of the explorer's format: its patches, trajectories, steps and compared boundaries
write.py      the records and candidates of a directory as one HTML file
issues.js     the overview and an issue, made of the explorer's parts
issues.css    what they add to its style

It computes no selection and reads no verdict: verdicts come in as data.
"""

from radmoe_agent.page.write import PAGE, write_page

__all__ = ["PAGE", "write_page"]
