"""Language models behind any server that speaks OpenAI's protocol. Nothing but what is named for it needs one."""

from recollect.llm.chat import Llm, Message, open_llm

__all__ = ["Llm", "Message", "open_llm"]
