"""What all tests share: one Hypothesis profile, the same examples in every run."""

from hypothesis import settings

settings.register_profile("repository", derandomize=True, deadline=None)
settings.load_profile("repository")
