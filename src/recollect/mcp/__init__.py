"""The memory as a server for agents, over the Model Context Protocol; it speaks, and holds no logic."""
