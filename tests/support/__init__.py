"""What several directories of tests share: servers, databases, worlds, clients, fixtures. There are no tests here."""
