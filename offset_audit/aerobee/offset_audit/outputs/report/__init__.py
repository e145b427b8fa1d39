"""The report that a person opens: one HTML file, complete in itself, of bounded size."""
