"""What radmoe-lab adds to radmoe: its models and their engine, its tasks, and the commands over both."""

from radmoe.system.plugins import Plugin, PluginModel

_TASKS = ("math-1", "math-2", "math-3", "math-4", "choice", "code", "code-wide", "explain")
_LONG_TASKS = ("long-math", "long-code", "long-choice")
_THINKING = ("thinking", "instruct")


def _model(*styles: str) -> PluginModel:
    return PluginModel("radmoe_lab.models.weights", engine="lab", dtype="float32", styles=styles)


PLUGIN = Plugin(
    commands={
        "demo": "radmoe_lab.commands.demo.command",
        "bench": "radmoe_lab.commands.bench.command",
        "lab list": "radmoe_lab.commands.lab.list_command",
        "lab pools": "radmoe_lab.commands.lab.pools_command",
        "lab agent": "radmoe_lab.commands.lab.agent_command",
        "agent demo": "radmoe_lab.commands.agent_demo.demo_command",
    },
    engines={"lab": "radmoe_lab.inference.engine.LabEngine"},
    tasks={name: f"radmoe_lab.tasks.datasets.{name.upper().replace('-', '_')}" for name in (*_TASKS, *_LONG_TASKS)},
    models={
        "lab-qwen": _model(*_THINKING),
        "lab-oss": _model("low", "medium", "high"),
        "lab-next": _model(*_THINKING),
        "lab-agent-qwen": _model("thinking"),
    },
    problems=("radmoe_lab.tasks.named",),
    trajectories={".npz.xz": "radmoe_lab.agent.source.lab_source"},
)
