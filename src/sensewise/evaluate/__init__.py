"""The machinery of experiments: a task, the methods compared on it, rows of results. No data set is named here."""
