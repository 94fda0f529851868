"""Models whose files are fetched, verified and run on this machine.

`catalogue` says which there are, `cache` what is here and whether it is whole, `fetch` brings one in from one of the
`places`, by way of `staging`; `runtime` runs it.
"""
