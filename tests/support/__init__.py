"""What several directories of tests share: servers, databases, worlds, clients, fixtures. No test lives here."""
