"""Random worlds over every option that a release can be told, decided by its preset and by the live release.

``python tests/conformance/random_worlds --help`` says how it is run.
"""
