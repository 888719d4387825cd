"""An answer as it is drawn: tokens in, text, thoughts and figures out."""
