"""Notes saved, changed, forgotten, imported and exported."""
