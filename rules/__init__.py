"""The stage that knows algebra: rule files, their parser and compiler to egglog, and the audit of their soundness."""
