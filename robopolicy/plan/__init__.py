"""From a budget of FLOPs to an attention mechanism: predicted errors, counted prices, and their front."""
