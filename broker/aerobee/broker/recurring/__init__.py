"""Messages that recur: schedules by name, a client of `journal/`.

`times` and `schedules` are pure; the runner sends what is due, on a master alone.
"""
