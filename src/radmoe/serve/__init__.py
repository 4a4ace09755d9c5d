"""Best-of-N behind one URL: an OpenAI-compatible server that samples N rollouts and answers with RAD's pick.

settings.py          what the gateway is told when it starts
api_request.py       the body of a request: plain or best-of-N, and what it asks for
api_errors.py        errors in OpenAI's shape, which say nothing of the servers behind the gateway
backends.py          the interface of what samples, and what it hands over
engine_backend.py    the backend of a model in this process, on any engine
upstream_backend.py  the backend of servers: vLLM's own endpoints, and SGLang's
upstreams.py         the servers: what they serve, their health and load, retries
vllm_requests.py     a client's request as vLLM is asked it, and the choices of the answer
prompt_rendering.py  prompts rendered and answers built here, for backends that take token ids
best_of.py           from rollouts to a pick: kind, preset, selection, and the `radmoe` object of an answer
adaptive.py          sampling in rounds until the pick is settled
service.py           one request from its place in the queue to its answer
admission.py         the bounded queue of requests
record.py            served groups kept as a pool
recent.py            the last selections, for the page
live.py, web/        the page at /
telemetry.py         metrics and logs
replies.py           answers as JSON or as a stream of chunks
connections.py       limits on connections: how many there are, and how long each may take
same_site.py         without keys: refuses requests that come from pages of other sites
app.py               the routes
run.py               the process: signals, the port, the end

The gateway reads routing and never an answer, as everything that selects does. Nothing here is imported before
`radmoe serve` is called.
"""
