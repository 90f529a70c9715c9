"""The verbs that administer a cluster over the wire, Apache's clusters too; they know no server and open no store."""
