// The simulated driver is built from this folder.
