"""The machinery of experiments: a task, the methods that are compared on it, rows of results. No data set is named here."""
