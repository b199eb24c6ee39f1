"""Missing mass: policies, repeated rounds, limited domain, bounds on utility."""
