"""Tools that read, evaluate and transform traced programs (jaxprs)."""
