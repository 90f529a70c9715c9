"""What the methods of the service do, on top of the operations of one broker; no HTTP/2, and no command of remoting."""
