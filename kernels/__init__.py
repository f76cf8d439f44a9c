"""The stage that makes code: buffers, loop nests, kernels for each target, and the runtime that calls them."""
