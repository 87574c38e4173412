"""Tests of the test bed's parts that need no cluster."""
