"""Topics of this broker: their table, and how name servers learn of them."""
