"""Which node a sample is of, whether it may be marked, and how the mark stands on it. Begin with
`inventory`.
"""
