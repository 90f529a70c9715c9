"""Masters and slaves: the copy of the log over the HA port (spec replication.md).

It knows the store through a narrow door only: bytes from here on, append these bytes here, the end has moved. What a
broker does as master or slave is started and stopped in `role.py`, beside the folders.
"""
