"""Best-of-N behind one URL: an OpenAI-compatible server that samples N rollouts and answers with RAD's pick.

settings.py    what the gateway is told when it starts
faults.py      errors as a client sees them: OpenAI's shape, and nothing of what stands behind the gateway
asks.py        a request's body: plain or best-of-N, and what is wanted
backends.py    what samples: the interface, and what it hands over
upstreams.py   servers: what they serve, their health and load, retries
served.py      the backend of servers: vLLM's own endpoints, and SGLang's
embedded.py    the backend of a model in this process
rendered.py    prompts rendered and answers built here, for backends that speak token ids
picks.py       rollouts to a pick: kind, preset, selection, and the `radmoe` object of an answer
adaptive.py    rounds of rollouts, until the pick is settled
vllm_requests.py  a client's request as vLLM is asked it, and the choices of the answer
live.py, web/  the page at /
service.py     one best-of-N request from its place in the queue to its answer
admission.py   bounded queue, deadlines
record.py      served groups kept as a pool
recent.py      the last selections, for the page
telemetry.py   metrics and logs
replies.py     answers as JSON or as a stream of chunks
connections.py how many connections there are, and how long each may take
door.py        who may ask where there are no keys
app.py         the routes
run.py         the process: signals, the port, the end

The gateway reads routing and never an answer, as everything that selects does. Nothing here is imported before
`radmoe serve` is called.
"""
