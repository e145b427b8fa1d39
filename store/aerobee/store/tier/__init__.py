"""Segments of the log in an object store: what is there, and how it gets there. It knows neither
broker nor network."""
