"""Questions about a whole: each part or document answers, and one answer is made of these."""
