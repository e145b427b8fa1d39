"""The small JSON files of `config/`, as Apache reads and writes them."""
