"""The stage that imports: models of other frameworks and formats become terms."""
