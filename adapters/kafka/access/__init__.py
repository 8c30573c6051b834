"""Authorization, ACLs, SASL exchanges and SCRAM credentials."""
