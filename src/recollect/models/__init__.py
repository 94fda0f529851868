"""Models: their files (`catalogue`, `fetch`), and the embedders, rerankers and language models that use them."""
