"""A proxy's emulators and its training, ex vivo and in vivo."""
