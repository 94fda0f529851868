"""Every connection to another machine: which addresses are refused, the one HTTP client, and the count of calls.

PostgreSQL, object storage, pip and the libraries of other packages open connections of their own; they ask
`addresses.check_host` or `addresses.offline` first.
"""
