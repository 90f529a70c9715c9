"""What a broker does, a folder for each feature: topics, outcomes, groups, delays, transactions, sends, pulls.

In each folder `handlers.py` is the adapter to the wire: it decodes a request, calls an operation and encodes what comes
of it. All other modules are operations and their tables; they know neither frames nor connections. `components.py`
builds one broker of them, `server.py` runs it.
"""
