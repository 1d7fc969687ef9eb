"""The versioned objects over the relational store. All SQL that is not schema lives here; no HTTP does."""
