"""Pictures, films and pages. Nothing here depends on tasks or runs."""
