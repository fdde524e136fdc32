"""Fast arithmetic for recurrent states; twins of one another in NumPy, torch and Triton."""
