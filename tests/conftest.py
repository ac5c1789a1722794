import os

from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

settings.register_profile("coadjoint", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("coadjoint")
