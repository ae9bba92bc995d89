"""Results in, tables, figures and pages out. Nothing here runs a model or knows an experiment."""
