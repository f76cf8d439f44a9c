"""Python functions over arrays: traced with numpy's operators and functions, or written index by index."""
