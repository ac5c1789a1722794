"""The command `coadjoint`."""
