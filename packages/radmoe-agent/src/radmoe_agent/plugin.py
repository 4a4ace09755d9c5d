"""The plugin of radmoe-agent: it adds the commands that run, import and select an agent's trajectories."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(
    commands={
        "agent run": "radmoe_agent.commands.agent.run_command",
        "agent import": "radmoe_agent.commands.agent.import_command",
        "agent select": "radmoe_agent.commands.agent.select_command",
    },
)
