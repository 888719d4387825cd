"""Products of quantised weights with a batch: each panel of eight rows is unpacked once for many tokens."""
