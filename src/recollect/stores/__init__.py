"""Where records are kept: one package per kind of store, found by the scheme of a URL and loaded when used."""

from recollect.stores.kinds import STORES, StoreKind, check_place, exists, kind_of, open_store, scheme_of

__all__ = ["STORES", "StoreKind", "check_place", "exists", "kind_of", "open_store", "scheme_of"]
