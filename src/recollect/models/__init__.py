"""Models: their files and how they are fetched, and the embedders, rerankers and language models that use them.

`catalogue` lists the models with the hashes of their files, `cache` holds those on this machine, `fetch` brings one in.
`embedders` and `rerankers` open one by name; `onnx`, `hashing`, `openai` and `adapters` are what they open. `llm` talks
to a language model. `endpoint` is the HTTP client of `openai` and `llm`.
"""
