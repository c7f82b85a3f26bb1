"""Drawing: curves, bars, films, contact sheets and pages, from plain numbers and images."""
