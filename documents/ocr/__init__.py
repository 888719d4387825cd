"""Scans and pictures, which tesseract recognises."""
