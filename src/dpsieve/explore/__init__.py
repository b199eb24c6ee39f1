"""The explorer: a local page that plans before anything is spent, and opens what is published. It reads no rows."""
