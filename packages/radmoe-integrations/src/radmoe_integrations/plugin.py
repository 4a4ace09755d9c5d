"""What radmoe-integrations adds to radmoe: commands that bring rollouts in and take pools out, and Ray."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(
    commands={
        "import": "radmoe_integrations.commands.import_rollouts.command",
        "export": "radmoe_integrations.commands.export.command",
    },
    clusters={"ray": "radmoe_integrations.on_ray.RAY"},
)
