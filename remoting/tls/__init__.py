"""Certificates, keys, and what the settings of TLS make of them: contexts for servers and for the clients inside them.

Which connection speaks TLS is not decided here (``transport/acceptor.py``), and no file of settings is read
(``common/settings.py``).
"""
