"""The versioned objects over the relational store: a module for each noun of the API, with its SQL, without HTTP."""
