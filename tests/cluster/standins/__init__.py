"""Programs that answer for hardware which the test bed does not have."""
