"""Helpers that several packages share: files, TLS, proxies, logging, text."""
