"""Retrievers: each turns a query into a ranked list. External systems are loaded when they are used."""
