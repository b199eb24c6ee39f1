"""Black-box audits: lower bounds on epsilon from runs, from canaries, and from replayed randomness."""
