"""Who may do what: users, policies, and the decision about a request; requests 3001 to 3010 change them."""
