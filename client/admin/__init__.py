"""Administration over the wire, of Apache clusters too."""
