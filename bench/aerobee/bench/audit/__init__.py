"""How large an audit may be, and how long it takes."""
