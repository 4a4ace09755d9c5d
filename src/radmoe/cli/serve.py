"""`radmoe serve` puts best-of-N behind one URL, for every client of OpenAI's API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import pool_path
from radmoe.system.printing import say

EXAMPLES = (
    "radmoe serve --model lab-qwen",
    "radmoe serve --upstream http://localhost:8000 --model ./checkpoint",
    "radmoe serve --upstream URL --upstream URL --model DIR --keys keys.txt --host 0.0.0.0",
    "radmoe serve --model lab-qwen --record served/",
    "radmoe serve --model lab-qwen --host 0.0.0.0 --no-keys",
)


def command(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model to run here; with --upstream the directory of the one that is served (config.json and "
            "tokenizer.json suffice).",
            show_default="lab-qwen; with --upstream the server's own, if it is a directory here",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine", help="What runs --model here: transformers, vllm, llamacpp, or an engine of your own."
        ),
    ] = "transformers",
    upstream: Annotated[
        list[str] | None,
        typer.Option("--upstream", help="A vLLM or SGLang server, such as http://localhost:8000; may be given often."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port to listen on; 0 for a free one.")] = 8100,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="A file of API keys, one a line, that clients must have one of.")
    ] = None,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Let everybody ask who reaches a --host that is not this machine alone.")
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            help="A page's origin that a browser may let ask, such as https://example.org; may be given often.",
        ),
    ] = None,
    upstream_key: Annotated[
        str | None,
        typer.Option("--upstream-key", envvar="RADMOE_API_KEY", help="Sent to the upstreams as a bearer token."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option("--preset", help="How rollouts are read where a request does not say: paper, best and others."),
    ] = "paper",
    rollouts: Annotated[int, typer.Option("-n", help="Rollouts of MODEL#rad, where no number is given.")] = 16,
    most: Annotated[int, typer.Option("--most-rollouts", help="The most rollouts that a request may ask for.")] = 64,
    running: Annotated[int, typer.Option("--running", help="Requests under way at a time.")] = 32,
    waiting: Annotated[int, typer.Option("--waiting", help="Requests that may wait for their turn.")] = 128,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds that a request may take.")] = 600.0,
    retries: Annotated[
        int, typer.Option("--retries", help="How often a request that an upstream lost is sent again.")
    ] = 3,
    largest_body: Annotated[int, typer.Option("--largest-body", help="Bytes that a request may have.")] = 4 << 20,
    largest_answer: Annotated[
        int, typer.Option("--largest-answer", help="Bytes that an upstream's answer may have.")
    ] = 256 << 20,
    keep_alive: Annotated[
        float, typer.Option("--keep-alive", help="Seconds between a stream's comments while rollouts are sampled.")
    ] = 5.0,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="A pool in which every served group is kept; new, or of this model.",
            parser=pool_path,
            metavar="PATH",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="How sure picks are: a file of radmoe calibrate for this model."),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            "--noise",
            help="Answers say which picks are ahead by less than this numeric noise, which radmoe doctor measures.",
        ),
    ] = None,
    recent: Annotated[int, typer.Option("--recent", help="Selections that the page at / shows; 0 keeps none.")] = 100,
    log_prompts: Annotated[bool, typer.Option("--log-prompts", help="Write prompts into the log too.")] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rollouts that --model samples at a time.")] = 64,
    device: Annotated[str, typer.Option("--device", help="Where --model runs: cpu or cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option("--threads", help="Cores for --model.", show_default="all")] = None,
) -> None:
    """Serve OpenAI's API with best-of-N behind it.

    A request for MODEL#rad-16 samples 16 rollouts and is answered with the one that RAD picks. A request's own n keeps its meaning. The log goes to stderr, one line of JSON per request, without prompts.
    """
    from radmoe.serve.best_of import check_preset
    from radmoe.serve.run import serve
    from radmoe.serve.settings import Settings, read_keys

    upstreams = tuple(upstream or ())
    settings = Settings(
        model=model if model is not None or upstreams else "lab-qwen",
        engine=engine,
        upstreams=upstreams,
        host=host,
        port=port,
        keys=() if keys is None else read_keys(keys),
        no_keys=no_keys,
        cors=tuple(cors or ()),
        upstream_key=upstream_key,
        preset=check_preset(preset),
        rollouts=rollouts,
        most_rollouts=most,
        running=running,
        waiting=waiting,
        deadline=deadline,
        retries=retries,
        largest_body=largest_body,
        largest_answer=largest_answer,
        keep_alive=keep_alive,
        calibration=calibration,
        noise=noise,
        record=record,
        recent=recent,
        log_prompts=log_prompts,
        batch_size=batch_size,
        device=device,
        threads=threads,
    )
    shown = f"[{host}]" if ":" in host else host
    serve(
        settings,
        ready=lambda own: say(f"radmoe serves at http://{shown}:{own}/v1, and a page at http://{shown}:{own}/"),
    )
