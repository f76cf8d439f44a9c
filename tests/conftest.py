"""Settings for the whole suite."""

import os

from hypothesis import settings

# The first example of a test may compile a kernel, so there is no deadline; on CI the same examples run every time.
settings.register_profile("frittata", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("frittata")
