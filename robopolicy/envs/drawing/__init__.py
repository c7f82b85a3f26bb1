"""Pictures of a scene by a software renderer, the same bits on every engine and in every process."""
