"""Batched environments for training, built on the engine."""
