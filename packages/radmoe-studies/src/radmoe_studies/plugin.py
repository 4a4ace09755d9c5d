"""The plugin of radmoe-studies: its commands run the paper's analyses, fit calibrations, and advise how to select."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(
    commands={
        "advise": "radmoe_studies.commands.advise.command",
        "calibrate": "radmoe_studies.commands.calibrate.command",
        "study": "radmoe_studies.commands.study.command",
        "replicate": "radmoe_studies.commands.replicate.command",
        "audit": "radmoe_studies.commands.audit.command",
        "agent evaluate": "radmoe_studies.commands.agent.evaluate_command",
    },
)
