"""`aerobee store verify`, `repair` and `stats`: what an operator needs in front of a folder."""
