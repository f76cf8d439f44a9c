"""The stage that decides: machine profile, costs, kernel candidates, and the choice of a program from an e-graph."""
