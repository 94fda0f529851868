"""Settings: what can be set, and where each value came from.

Built-in defaults < the user's TOML < the project's TOML < the environment (`RECOLLECT_…`) < flags.
"""

from recollect.config.loading import Loaded, load, override, unknown_variables, user_file
from recollect.config.settings import (
    IngestSettings,
    LlmSettings,
    OpenAISettings,
    ScopeSettings,
    SearchSettings,
    Settings,
)
from recollect.config.sources import SYSTEMS, SourceSettings, shown

__all__ = [
    "SYSTEMS",
    "IngestSettings",
    "LlmSettings",
    "Loaded",
    "OpenAISettings",
    "ScopeSettings",
    "SearchSettings",
    "Settings",
    "SourceSettings",
    "load",
    "override",
    "shown",
    "unknown_variables",
    "user_file",
]
