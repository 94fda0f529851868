"""The memory over HTTP: a JSON API, MCP and a page; it speaks, and holds no logic."""
