"""The memory as a part of other frameworks, one module each, loaded on use: `langchain` and `llamaindex`."""
