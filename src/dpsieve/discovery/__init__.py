"""Discovery: which keys occur, the k most frequent ones, and k keys that reach most units, over an unknown domain."""
