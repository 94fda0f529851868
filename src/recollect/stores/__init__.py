"""Stores: one package per kind, registered by the scheme of its URLs and loaded when it is used."""

from recollect.stores.kinds import STORES, StoreKind, check_place, exists, kind_of, open_store, scheme_of

__all__ = ["STORES", "StoreKind", "check_place", "exists", "kind_of", "open_store", "scheme_of"]
