"""Luesink, Ephrati, Cifani and Geurts (2024), reproduced: an experiment is NAME.toml and NAME.py."""
