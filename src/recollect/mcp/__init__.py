"""The memory as a server for agents, over the Model Context Protocol (MCP)."""
