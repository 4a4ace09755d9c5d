"""What radmoe-integrations adds to radmoe: commands that bring rollouts in and take pools out, and Ray clusters."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(commands={}, clusters={"ray": "radmoe_integrations.on_ray.RAY"})
