"""The term language, its operators and types, and the e-graph engine that saturates it."""
