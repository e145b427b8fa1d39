"""The words of the field that every part shares: names, tags, attributes of topics, SQL filters."""
