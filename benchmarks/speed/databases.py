"""Systems that bring their own hybrid search, each set up as its documentation advises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from benchmarks.speed.contender import DEPTH, RRF_K, TOP, Contender, Found, Ready
from benchmarks.speed.data import DIMENSION, Batch, questions, user_of


class LanceDb(Contender):
    packages: ClassVar = ["lancedb"]
    note: ClassVar = (
        "hybrid query with RRF; FTS index, bitmap index of users; vectors without an index below 100,000 records, with"
        " IVF_HNSW_SQ from 100,000 on"
    )

    def connect(self) -> Any:
        import lancedb

        return lancedb.connect(str(self.folder / "lance"))

    def open(self) -> None:
        self.table = self.connect().open_table("records")

    def load(self, batches: Iterator[Batch]) -> None:
        import pyarrow as pa

        def tables() -> Iterator[Any]:
            for batch in batches:
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.ravel()), batch.vectors.shape[1])
                users = [user_of(number) for number in batch.numbers]
                columns = [pa.array(batch.numbers), pa.array(users), pa.array(batch.texts), vectors]
                yield pa.table(columns, ["number", "user", "text", "vector"]).to_batches()[0]

        first = next(parts := tables())

        def every() -> Iterator[Any]:
            yield first
            yield from parts

        reader = pa.RecordBatchReader.from_batches(first.schema, every())
        self.table = self.connect().create_table("records", reader)
        self.table.create_fts_index("text", replace=True)
        self.table.create_scalar_index("user", index_type="BITMAP")
        if self.size >= 100_000:
            self.table.create_index(metric="cosine", index_type="IVF_HNSW_SQ")
        self.table.optimize()

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        query = self.table.search(query_type="hybrid").vector(vector).text(text).distance_type("cosine")
        if user:
            query = query.where(f"user = '{user}'", prefilter=True)
        rows = query.select(["number", "text"]).limit(TOP).to_list()
        return [(row["number"], row["text"]) for row in rows]

    def add(self, number: int, text: str, vector: np.ndarray) -> None:
        self.table.add([{"number": number, "user": user_of(number), "text": text, "vector": vector}])

    def refresh(self) -> None:
        self.table.checkout_latest()


class Txtai(Contender):
    packages: ClassVar = ["txtai", "torch", "faiss-cpu"]
    note: ClassVar = (
        "hybrid, with content and vectors from a function; one user by SQL, which filters the first 10,000 candidates"
    )

    def make(self) -> Any:
        from txtai import Embeddings

        self.ready = Ready(*questions())

        def transform(texts: list[str]) -> np.ndarray:
            return np.stack([self.ready.take(text) for text in texts])

        self.transform = transform
        return Embeddings(method="external", transform=transform, hybrid=True, content=True)

    def load(self, batches: Iterator[Batch]) -> None:
        self.embeddings = self.make()

        def documents() -> Iterator[tuple[int, dict[str, str]]]:
            for batch in batches:
                self.ready.expect(batch.texts, batch.vectors)
                for number, text in zip(batch.numbers, batch.texts, strict=True):
                    yield number, {"text": text, "user": user_of(number)}

        self.embeddings.index(documents())
        self.embeddings.save(str(self.folder / "txtai"))

    def open(self) -> None:
        self.embeddings = self.make()
        self.embeddings.load(str(self.folder / "txtai"), config={"transform": self.transform})

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        self.ready.lasting[text] = vector
        if user:
            sql = "SELECT id, text FROM txtai WHERE similar(:text, 10000) AND user = :user"
            rows = self.embeddings.search(sql, TOP, parameters={"text": text, "user": user})
        else:
            rows = self.embeddings.search(text, TOP)
        return [(int(row["id"]), row["text"]) for row in rows]

    def close(self) -> None:
        self.embeddings.close()


class MilvusLite(Contender):
    packages: ClassVar = ["milvus-lite", "pymilvus"]
    note: ClassVar = "hybrid_search with RRF over a BM25 function and an HNSW index"

    def connect(self) -> None:
        from pymilvus import MilvusClient

        self.client = MilvusClient(str(self.folder / "milvus.db"))

    def open(self) -> None:
        self.connect()
        self.client.load_collection("records")

    def load(self, batches: Iterator[Batch]) -> None:
        from pymilvus import DataType, Function, FunctionType

        self.connect()
        schema = self.client.create_schema()
        schema.add_field("number", DataType.INT64, is_primary=True)
        schema.add_field("user", DataType.VARCHAR, max_length=16)
        schema.add_field("text", DataType.VARCHAR, max_length=4_000, enable_analyzer=True)
        schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_field("dense", DataType.FLOAT_VECTOR, dim=DIMENSION)
        words = Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["sparse"])
        schema.add_function(words)
        indexes = self.client.prepare_index_params()
        indexes.add_index("dense", index_type="HNSW", metric_type="IP", params={"M": 16, "efConstruction": 200})
        indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        self.client.create_collection("records", schema=schema, index_params=indexes)
        for batch in batches:
            rows = zip(batch.numbers, batch.texts, batch.vectors, strict=True)
            self.client.insert("records", [self.row(*each) for each in rows])
        self.client.flush("records")

    def row(self, number: int, text: str, vector: np.ndarray) -> dict[str, Any]:
        return {"number": number, "user": user_of(number), "text": text, "dense": vector}

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        from pymilvus import AnnSearchRequest, RRFRanker

        only = {"expr": f'user == "{user}"'} if user else {}
        requests = [
            AnnSearchRequest([vector], "dense", {"metric_type": "IP", "params": {"ef": DEPTH}}, limit=DEPTH, **only),
            AnnSearchRequest([text], "sparse", {"metric_type": "BM25"}, limit=DEPTH, **only),
        ]
        hits = self.client.hybrid_search("records", requests, RRFRanker(RRF_K), limit=TOP, output_fields=["text"])[0]
        return [(hit["number"], hit["entity"]["text"]) for hit in hits]

    def close(self) -> None:
        self.client.close()


class Chroma(Contender):
    packages: ClassVar = ["chromadb"]
    note: ClassVar = (
        "vectors only, because its hybrid search is part of Chroma Cloud; not among the contenders of the ratio"
    )
    hybrid: ClassVar = False

    def open(self) -> None:
        import chromadb

        self.client = chromadb.PersistentClient(str(self.folder))
        self.collection = self.client.get_or_create_collection(
            "records", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def load(self, batches: Iterator[Batch]) -> None:
        self.open()
        most = self.client.get_max_batch_size()
        for batch in batches:
            for at in range(0, len(batch.texts), most):
                numbers, part = batch.numbers[at : at + most], slice(at, at + most)
                self.collection.add(
                    ids=[str(number) for number in numbers],
                    embeddings=batch.vectors[part],
                    documents=batch.texts[part],
                    metadatas=[{"user": user_of(number)} for number in numbers],
                )

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:  # noqa: ARG002  (no keywords)
        only = {"where": {"user": user}} if user else {}
        reply = self.collection.query(query_embeddings=[vector], n_results=TOP, include=["documents"], **only)
        return [(int(key), text) for key, text in zip(reply["ids"][0], reply["documents"][0], strict=True)]


class LlamaIndex(Contender):
    packages: ClassVar = ["llama-index-core", "llama-index-retrievers-bm25"]
    note: ClassVar = "QueryFusionRetriever (reciprocal_rerank, no generated queries) over its own vector store and BM25"

    def load(self, batches: Iterator[Batch]) -> None:
        from llama_index.core import StorageContext, VectorStoreIndex
        from llama_index.core.schema import TextNode
        from llama_index.retrievers.bm25 import BM25Retriever

        nodes = [
            TextNode(id_=str(number), text=text, metadata={"user": user_of(number)}, embedding=vector.tolist())
            for batch in batches
            for number, text, vector in zip(batch.numbers, batch.texts, batch.vectors, strict=True)
        ]
        index = VectorStoreIndex(nodes, embed_model=self.model(), storage_context=StorageContext.from_defaults())
        index.storage_context.persist(str(self.folder / "index"))
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=TOP).persist(str(self.folder / "bm25"))
        self.open()

    def model(self) -> Any:
        from llama_index.core import MockEmbedding

        return MockEmbedding(embed_dim=DIMENSION)

    def open(self) -> None:
        from llama_index.core import StorageContext, load_index_from_storage
        from llama_index.retrievers.bm25 import BM25Retriever

        storage = StorageContext.from_defaults(persist_dir=str(self.folder / "index"))
        self.index: Any = load_index_from_storage(storage, embed_model=self.model())
        self.words = BM25Retriever.from_persist_dir(str(self.folder / "bm25"))
        self.all = self.fusion(self.words)

    def fusion(self, words: Any, filters: Any = None) -> Any:
        from llama_index.core.llms import MockLLM
        from llama_index.core.retrievers import QueryFusionRetriever

        meaning = self.index.as_retriever(similarity_top_k=TOP, filters=filters)
        options: dict[str, Any] = {"num_queries": 1, "mode": "reciprocal_rerank", "use_async": False}
        return QueryFusionRetriever([meaning, words], llm=MockLLM(), similarity_top_k=TOP, **options)

    def of_user(self, user: str) -> Any:
        from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
        from llama_index.retrievers.bm25 import BM25Retriever

        only = MetadataFilters(filters=[MetadataFilter(key="user", value=user)])
        return self.fusion(BM25Retriever(existing_bm25=self.words.bm25, similarity_top_k=TOP, filters=only), only)

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        from llama_index.core.schema import QueryBundle

        retriever = self.of_user(user) if user else self.all
        rows = retriever.retrieve(QueryBundle(text, embedding=vector.tolist()))
        return [(int(row.node.node_id), row.node.text) for row in rows]
