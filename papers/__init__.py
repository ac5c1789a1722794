"""Reproductions of papers: one folder for each paper, and what `coadjoint reproduce` does with them."""
