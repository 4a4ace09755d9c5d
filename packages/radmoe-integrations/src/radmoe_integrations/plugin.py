"""What radmoe-integrations adds to radmoe: commands that bring rollouts in and take pools out."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(commands={"import": "radmoe_integrations.commands.import_rollouts.command"})
