//! Which control groups this process is in, and what they say: versions 1, 2 and both at once.
