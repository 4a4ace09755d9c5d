"""The plugin of radmoe-llamacpp: it adds the engine llamacpp."""

from radmoe.system.plugins import Plugin

PLUGIN = Plugin(engines={"llamacpp": "radmoe_llamacpp.engine.LlamaCppEngine"})
