"""CAST between all types that Spark's ANSI mode allows, a file per source family; `cast` holds the table."""
