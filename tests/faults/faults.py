"""All faults that `run.py` plants, from the files beside this one.

To add one: choose a text that occurs once in its file, short and unlikely to change, and what a tired programmer might
have written instead. The code must still run: the fault is in what it promises. If no test notices, write that test.
"""

import in_channels
import in_discovery
import in_engines
import in_federated
import in_privacy
import in_randomness
import in_set_union
import in_several_keys
import in_sketches
import in_vectors

ROOMS = (
    in_randomness, in_privacy, in_channels, in_engines, in_sketches, in_federated, in_vectors, in_set_union,
    in_discovery, in_several_keys,
)  # fmt: skip
FAULTS = [fault for room in ROOMS for fault in room.FAULTS]
