"""What a script writes below the user's folder goes into a folder of the trial's own."""
