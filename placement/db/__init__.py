"""The relational store: tables, engine, transactions and migrations."""
