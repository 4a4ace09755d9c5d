"""`radmoe serve` puts best-of-N behind one URL, for every client of OpenAI's API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.cli.common import option, pool_path, takes
from radmoe.system.printing import say

if TYPE_CHECKING:
    from radmoe.serve.settings import Settings

EXAMPLES = (
    "radmoe serve --model lab-qwen",
    "radmoe serve --upstream http://localhost:8000 --model ./checkpoint",
    "radmoe serve --upstream URL --upstream URL --model DIR --keys keys.txt --host 0.0.0.0",
    "radmoe serve --model lab-qwen --record served/",
    "radmoe serve --model lab-qwen --record served/ --keep 30",
    "radmoe serve --model lab-qwen --host 0.0.0.0 --no-keys",
)


_OPTIONS: dict[str, Any] = {  # of `radmoe.serve.settings.Settings`
    "model": option(
        str,
        "--model",
        "The model to run here; with --upstream the directory of the one that is served (config.json and "
        "tokenizer.json suffice).",
        "lab-qwen; with --upstream the server's own, if it is a directory here",
    ),
    "engine": option(
        str,
        "--engine",
        "What runs --model here: transformers, vllm, llamacpp, or an engine of your own.",
        "transformers",
    ),
    "upstreams": option(
        list[str], "--upstream", "A vLLM or SGLang server, such as http://localhost:8000; may be given often."
    ),
    "host": option(str, "--host", "The address to listen on; 0.0.0.0 for all.", "127.0.0.1"),
    "port": option(int, "--port", "The port to listen on; 0 for a free one.", "8100"),
    "keys": option(Path, "--keys", "A file of API keys, one a line, that clients must have one of."),
    "no_keys": option(bool, "--no-keys", "Let everybody ask who reaches a --host that is not this machine alone."),
    "cors": option(
        list[str],
        "--cors",
        "A page's origin that a browser may let ask, such as https://example.org; may be given often.",
    ),
    "upstream_key": option(str, "--upstream-key", "Sent to the upstreams as a bearer token.", envvar="RADMOE_API_KEY"),
    "preset": option(
        str, "--preset", "How rollouts are read where a request does not say: paper, best and others.", "paper"
    ),
    "rollouts": option(int, "-n", "Rollouts of MODEL#rad, where no number is given.", "16"),
    "most_rollouts": option(int, "--most-rollouts", "The most rollouts that a request may ask for.", "64"),
    "running": option(int, "--running", "Requests under way at a time.", "32"),
    "waiting": option(int, "--waiting", "Requests that may wait for their turn.", "128"),
    "deadline": option(float, "--deadline", "Seconds that a request may take.", "600"),
    "retries": option(int, "--retries", "How often a request that an upstream lost is sent again.", "3"),
    "largest_body": option(int, "--largest-body", "Bytes that a request may have.", "4194304, 4 MiB"),
    "largest_answer": option(
        int, "--largest-answer", "Bytes that an upstream's answer may have.", "268435456, 256 MiB"
    ),
    "keep_alive": option(float, "--keep-alive", "Seconds between a stream's comments while rollouts are sampled.", "5"),
    "record": option(
        Path,
        "--record",
        "A pool in which every served group is kept; new, or of this model.",
        parser=pool_path,
        metavar="PATH",
    ),
    "keep": option(float, "--keep", "Days after which a group is deleted from the pool of --record.", "for ever"),
    "calibration": option(Path, "--calibration", "How sure picks are: a file of radmoe calibrate for this model."),
    "noise": option(
        float,
        "--noise",
        "Answers say which picks are ahead by less than this numeric noise, which radmoe doctor measures.",
    ),
    "recent": option(int, "--recent", "Selections that the page at / shows; 0 keeps none.", "100"),
    "log_prompts": option(bool, "--log-prompts", "Write prompts into the log too."),
    "batch_size": option(int, "--batch-size", "Rollouts that --model samples at a time.", "64"),
    "device": option(str, "--device", "Where --model runs: cpu or cuda.", "cpu"),
    "threads": option(int, "--threads", "Cores for --model.", "all"),
}


def _settings(keys: Path | None = None, preset: str = "paper", **given: Any) -> Settings:
    from radmoe.serve.best_of import check_preset
    from radmoe.serve.settings import Settings, read_keys

    given |= {name: tuple(given[name]) for name in ("upstreams", "cors") if name in given}
    if not given.get("upstreams"):
        given.setdefault("model", "lab-qwen")
    return Settings(keys=() if keys is None else read_keys(keys), preset=check_preset(preset), **given)


@takes("settings", _settings, _OPTIONS)
def command(settings: Any) -> None:
    """Serve OpenAI's API with best-of-N behind it.

    A request for MODEL#rad-16 samples 16 rollouts and is answered with the one that RAD picks. A request's own n keeps its meaning. The log goes to stderr, one line of JSON per request, without prompts.
    """
    from radmoe.serve.run import serve

    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    serve(
        settings,
        ready=lambda own: say(f"radmoe serves at http://{shown}:{own}/v1, and a page at http://{shown}:{own}/"),
    )
