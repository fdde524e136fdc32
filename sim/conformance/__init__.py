"""Comparison of the reference engine with recorded decisions of real releases (`stateat conform`)."""
