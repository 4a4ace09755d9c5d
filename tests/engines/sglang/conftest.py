"""SGLang's own classes, where SGLang is installed (docs/engines.md says how). Elsewhere their tests are left out."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    version("sglang")
except PackageNotFoundError:
    collect_ignore = ["test_sglang_classes.py"]
