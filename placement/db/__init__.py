"""The database: tables, engine, transactions and migrations."""
