"""Where an agent's commands run: mini-swe-agent's bubblewrap environment, confined.

A command sees a read-only system, the directory of its own instance at `/testbed`, and an empty `/tmp`. It has no
network, no other process, and limits of time, memory, processes, file size and output.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import Any

from minisweagent.environments.extra.bubblewrap import BubblewrapEnvironment, BubblewrapEnvironmentConfig

from radmoe.errors import EngineError

WORKDIR = "/testbed"
_MB = 1 << 20
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
_ARGUMENTS = [
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    *(part for path in _SYSTEM for part in ("--ro-bind-try", path, path)),
    *("--proc", "/proc"),
    *("--dev", "/dev"),
    *("--size", str(64 * _MB), "--tmpfs", "/tmp"),
]
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PAGER": "cat",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_AUTHOR_NAME": "radmoe",
    "GIT_AUTHOR_EMAIL": "radmoe@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "radmoe",
    "GIT_COMMITTER_EMAIL": "radmoe@localhost",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}
_UNDER_WAY: set[subprocess.Popen[bytes]] = set()
_FIRST_COMMIT = "git init -q -b main . && git add -A && git commit -q --allow-empty -m base"


class ConfinedConfig(BubblewrapEnvironmentConfig):  # type: ignore[misc]
    """What mini-swe-agent's configuration says under `environment`.

    The agent works in a copy of the directory `repository`, or in `files`, texts by their paths. What has no history of
    its own gets one commit.
    """

    repository: str = ""
    files: dict[str, str] = {}  # noqa: RUF012 (pydantic copies it)
    timeout: int = 60
    wrapper_args: list[str] = _ARGUMENTS
    memory_mb: int = 1024
    file_mb: int = 64
    processes: int = 256
    output_bytes: int = 200_000


class ConfinedEnvironment(BubblewrapEnvironment):  # type: ignore[misc]
    """A directory per instance, in which commands run confined. `timeouts` counts the commands that were stopped."""

    def __init__(self, **options: Any) -> None:
        self.timeouts = 0
        super().__init__(config_class=ConfinedConfig, **options)
        if self.config.repository:
            shutil.copytree(self.config.repository, self.working_dir, symlinks=True, dirs_exist_ok=True)
        for name, text in self.config.files.items():
            path = self.working_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if not (self.working_dir / ".git").exists():
            made = self.execute({"command": _FIRST_COMMIT})
            if made["returncode"] != 0:
                reason = (made["output"].strip() or made["exception_info"] or "no reason given").splitlines()[0]
                raise EngineError(f"the first commit of a repository failed ({reason})")

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command; what it printed, its exit code, and in `exception_info` what stopped it."""
        limit = timeout or self.config.timeout
        with tempfile.TemporaryFile() as printed:
            try:
                process = subprocess.Popen(
                    self._command(action.get("command", ""), cwd or WORKDIR),
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"{self.config.executable} cannot be started ({error.strerror})") from None
            _UNDER_WAY.add(process)
            try:
                code, stopped = process.wait(limit), ""
            except subprocess.TimeoutExpired:
                code, stopped = -1, f"The command was stopped after {limit} seconds."
                self.timeouts += 1
            finally:
                _kill(process)
                process.wait()
                _UNDER_WAY.discard(process)
            text = self._printed(printed)
        output = {"output": text, "returncode": code, "exception_info": stopped}
        self._check_finished(output)
        return output

    def _command(self, command: str, cwd: str) -> list[str]:
        config = self.config
        limits = f"ulimit -c 0 -v {config.memory_mb << 10} -f {config.file_mb << 10} -u {config.processes}"
        settings = (part for item in (_ENVIRONMENT | config.env).items() for part in ("--setenv", *item))
        return [
            *(config.executable, *config.wrapper_args),
            *("--bind", str(self.working_dir), WORKDIR, "--remount-ro", "/", "--chdir", cwd),
            *settings,
            *("bash", "-c", f'{limits}; exec bash -c "$1"', "bash", command),
        ]

    def _printed(self, file: Any) -> str:
        """The beginning of what a command printed; of more than the limit, the rest is left out."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        text: str = file.read(self.config.output_bytes).decode(errors="replace")
        left = size - self.config.output_bytes
        return text if left <= 0 else f"{text}\n[{left} more bytes were left out]\n"

    def serialize(self) -> dict[str, Any]:
        described: dict[str, Any] = super().serialize()
        described["info"]["config"]["environment"].pop("files")
        described["info"]["timeouts"] = self.timeouts
        return described


def stop_commands() -> None:
    """End every command that is under way in this process."""
    for process in list(_UNDER_WAY):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command. What runs in its sandbox dies with it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def check_confinement(**options: Any) -> None:
    """Refuse, with an EngineError, a machine on which commands cannot be confined or git is missing."""
    try:
        ConfinedEnvironment(**options).cleanup()
    except EngineError as error:
        raise EngineError(
            f"an agent's commands cannot be confined here: {error}; install bubblewrap and git, and allow user namespaces"
        ) from None
