"""The policy: which actions run and which plugins advise them, tier by tier."""
