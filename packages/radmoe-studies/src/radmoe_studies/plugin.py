"""The plugin of radmoe-studies: it adds the commands that run the paper's analyses, and the one that fits calibrations."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(
    commands={
        "calibrate": "radmoe_studies.commands.calibrate.command",
        "study": "radmoe_studies.commands.study.command",
        "replicate": "radmoe_studies.commands.replicate.command",
        "audit": "radmoe_studies.commands.audit.command",
        "agent evaluate": "radmoe_studies.commands.agent.evaluate_command",
    },
)
