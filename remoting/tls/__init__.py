"""Certificates, keys, and what the settings of TLS make of them: contexts for servers and for the clients inside them.

Which connection speaks TLS is not decided here (``transport/acceptor.py``), and settings are read elsewhere
(``common/tls_settings.py``).
"""
