"""Settings: what can be set, and where each value came from.

Built-in defaults < the user's TOML < the project's TOML, if it is trusted < the environment (`RECOLLECT_…`) < flags.
"""

from recollect.config.settings import (
    BackupSettings,
    IngestSettings,
    LlmSettings,
    Loaded,
    OpenAISettings,
    ScopeSettings,
    Settings,
    load,
    override,
    unknown_variables,
    user_file,
)
from recollect.config.sources import SYSTEMS, SourceSettings, shown
from recollect.config.values import has_secret, misspelt, parameters, shown_place
from recollect.options import SearchOptions

__all__ = [
    "SYSTEMS", "BackupSettings", "IngestSettings", "LlmSettings", "Loaded", "OpenAISettings", "ScopeSettings",
    "SearchOptions", "Settings", "SourceSettings", "has_secret", "load", "misspelt", "override", "parameters",
    "shown", "shown_place", "unknown_variables", "user_file",
]  # fmt: skip
