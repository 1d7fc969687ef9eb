"""The versioned objects in the database: one module for each noun of the API, with its SQL and without HTTP."""
