"""What directories of tests share: servers, databases, topologies, clients, fixtures. There are no tests here."""
